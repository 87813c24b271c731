"""The code that runs in a Python worker: subtasks, operator chains, exchanges.

The package imports only cloudpickle from pyspark. The runners, which use Spark, call the package.

worker, level, subtask   the tasks of a process, the task of one level, one subtask of a stage
operators                the runtime operators, by family
exchange                 partitioners, buffers, rows, the gate that receives them
control                  the channel of commands and acks; `protocol` has the messages
batch_task               the batched form of a level's task
stream_task              the pipelined form of a level's task
watching, failure        the place where a task hangs, and the error that it failed with
"""
