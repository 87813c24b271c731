"""Keyed and operator state: backends, timers, snapshots, restore by key group.

The package does not know operators, graphs or Spark. Its interfaces are descriptors (`penstock.state.descriptors`) and
file readers and writers (`backend.StateFileWriter`, implemented by `penstock.checkpoint`). `docs/state.md` describes
the path of a value from a user's `update()` to a file and back.
"""
