"""Keyed and operator state: backends, timers, snapshots, restore by key group.

The package knows no operator, no graph and no Spark; it sees descriptors (`penstock.state.descriptors`) on one side and
file readers and writers (`backend.StateFileWriter`, given by `penstock.checkpoint`) on the other. `docs/state.md` tells
how a value travels from a user's `update()` to a file and back.
"""
