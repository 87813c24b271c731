"""What runs in a Python worker: subtasks, operator chains, exchanges. Of pyspark it knows cloudpickle alone: the
runners call it.

worker, level, subtask   from the process to the chain: who lives here, one level's task, one subtask of a stage
operators                the runtime operators, by family
exchange                 partitioners, buffers, rows on their way, the gate that receives them
control                  the channel of commands and acks, `protocol` what goes over it
stream_task              the pipelined form of a level's task
watchdog, failure        where a task is that does not come back, and what it failed with
"""
