"""An executor as a process of its TaskManager: how it is started, what becomes of its output, when it is tried again."""
