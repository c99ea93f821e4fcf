"""Making, listing and dropping files for tests of storages and links."""
