"""The machine that this runs on: its clock, disk, threads and network. Nothing here knows a service."""
