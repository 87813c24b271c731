"""The meaning of each operator's state: a description for snapshots, and the comparison at a restore."""
