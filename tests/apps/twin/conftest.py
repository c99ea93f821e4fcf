"""The twin is tested where numpy is: it is in the lock for tests, but an extra for users."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("numpy") else ["test_*.py"]
