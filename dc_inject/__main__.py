"""`python -m dc_inject` and the command `dc-inject`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # `python -m` put the working folder there, where others may have left a click.py

from dc_inject.cli.root import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
