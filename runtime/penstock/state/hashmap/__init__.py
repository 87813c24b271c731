"""The hashmap backend: state as Python objects in tables, and snapshots of the changes."""
