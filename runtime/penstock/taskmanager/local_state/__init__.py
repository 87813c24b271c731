"""Files of tasks on the TaskManager's disk: the folders of slots, and copies of state files for task-local recovery."""
