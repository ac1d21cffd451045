"""`python -m minitrain` is the command line."""

from minitrain.cli import main

main(prog_name="python -m minitrain")
