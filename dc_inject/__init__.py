"""dc_inject makes the traffic of data challenges: menus of link rates become Rucio rules or FTS jobs."""

__version__ = "0.1.0"
