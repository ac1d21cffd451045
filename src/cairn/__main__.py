"""`python -m cairn` is the command line."""

from cairn.cli.main import main

main()
