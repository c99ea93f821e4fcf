"""A grid on this machine: an unmodified Rucio server with its daemons, RSEs, links and datasets."""

from .environment import default_environment, ensure_environment, is_complete
from .grid import Dataset, Grid, Link, Rse, make_datasets, read_grid
from .sandbox import Sandbox, Status, default_folder

__all__ = [
    "Dataset",
    "Grid",
    "Link",
    "Rse",
    "Sandbox",
    "Status",
    "default_environment",
    "default_folder",
    "ensure_environment",
    "is_complete",
    "make_datasets",
    "read_grid",
]
