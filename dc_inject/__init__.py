"""dc_inject makes the traffic of data challenges: menus of link rates become Rucio rules or FTS jobs."""

__version__: str


def __getattr__(name: str) -> str:
    """Return `__version__`, that of the installed package, read when it is asked for: `--help` is quick."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata  # noqa: PLC0415  see above

    try:
        return metadata.version("dc-inject")
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        return "0.0+unknown"
