"""RabbitMQ: queues as source, exchanges and queues as sink, with PyFlink's names, based on pika (extra `penstock-streaming[rabbitmq]`).

**Guarantees.** The source acknowledges messages when the checkpoint that contains them is complete. `RMQSource` has two modes:

    use_correlation_id=True     exactly once. The checkpoint has the ids of messages that may be redelivered, and the source drops
                                redelivered messages. One subtask reads, as the queue's only consumer. The producer gives each message
                                a unique correlation id that is not empty
    use_correlation_id=False    at least once. Every subtask reads

`RMQSink` is at least once: a checkpoint waits until the broker has confirmed every message. The job fails if the broker rejects or cannot
route a message, or if a record cannot become a message.

**Options.** `RMQConnectionConfig.Builder` has PyFlink's options, and `set_password_file` for a file that is read at every connection. The
prefetch count bounds the messages between two checkpoints, and the messages that wait in memory.

**Errors.** Before the job starts, these are errors: an unreachable broker, a wrong password, and a missing vhost, queue, exchange or
right. Each error has a remedy. At run time, the connector tries to reconnect for half a minute. A deleted queue fails the job at once.

**Sizing.** Each subtask has one connection, with a thread that answers heartbeats. An id takes 16 bytes in a
checkpoint. A checkpoint has the ids of messages read since the previous checkpoint, and of messages acknowledged within
`keep_ids`.
"""
