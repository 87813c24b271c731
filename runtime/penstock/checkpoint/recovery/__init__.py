"""The path from a snapshot to a running job: takeover of the leadership, choice of the snapshot, and state of each subtask."""
