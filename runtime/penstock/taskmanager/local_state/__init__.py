"""What tasks keep on the TaskManager's disk: the folders of slots, copies of state files for task-local recovery."""
