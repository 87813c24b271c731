"""What runs in a Python worker: subtasks, operator chains, exchanges. Does not import pyspark: the runners call it."""
