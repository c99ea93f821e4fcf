"""A grid on this machine: an unmodified Rucio server with its daemons, RSEs, links and datasets."""

from .environment import RELEASES, default_environment, ensure_environment, is_complete
from .grid import Dataset, Grid, Link, Rse, make_datasets, read_grid
from .handle import default_folder
from .sandbox import Sandbox, Status, own_addresses
from .storage import Stored
from .xrootd import default_xrootd, ensure_xrootd
