"""The hashmap backend: state as Python objects in tables, snapshots of what changed."""
