"""An executor as a process of its TaskManager: its start, its output, and its restart."""
