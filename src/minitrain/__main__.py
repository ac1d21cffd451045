"""`python -m minitrain` is the command line."""

import sys

try:
    from minitrain.cli import main

    main(prog_name="python -m minitrain")
except KeyboardInterrupt:  # before training has begun there is nothing to finish
    sys.exit(130)
