"""RabbitMQ: queues as source, exchanges and queues as sink, under PyFlink's names, by pika (extra `penstock[rabbitmq]`).

**Guarantees.** Messages are acknowledged when the checkpoint that has them is complete. `RMQSource` promises

    use_correlation_id      exactly once: the checkpoint has the ids of messages that may come again, and those that do are dropped. One
                            subtask reads, as the queue's only consumer; the producer gives each message a correlation id of its own
                            that is not empty
    without                 at least once; every subtask reads

`RMQSink` promises at least once: a checkpoint waits until the broker has confirmed every message. What it cannot route or refuses fails the job,
and so does a record that no message can be made of.

**Options.** `RMQConnectionConfig.Builder` takes PyFlink's, and `set_password_file`: read at every connection. The prefetch count bounds what is read between two
checkpoints, and what waits in memory.

**Errors.** A broker that does not answer, a wrong password, a vhost, queue, exchange or right that is missing are errors before the job starts, each with
what to do. At run time a lost connection is made again for half a minute; a queue that was deleted fails the job at once.

**Sizing.** A connection, with a thread that answers heartbeats, for each subtask. Ids take 16 bytes each in a checkpoint: of what was read since the last one, and of what was
acknowledged within `keep_ids`.
"""
