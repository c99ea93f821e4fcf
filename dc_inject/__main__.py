"""`python -m dc_inject` and the command `dc-inject`."""

from dc_inject.cli.root import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
