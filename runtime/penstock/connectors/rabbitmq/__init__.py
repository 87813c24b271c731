"""RabbitMQ: queues as source, exchanges and queues as sink, with PyFlink's names, based on pika (extra `penstock-streaming[rabbitmq]`).

**Guarantees.** The source acknowledges messages when the checkpoint that contains them is complete. `RMQSource` has two modes:

    use_correlation_id      exactly once. The checkpoint has the ids of messages that may be redelivered, and the source drops
                            redelivered ones. One subtask reads, as the queue's only consumer. The producer gives each message a
                            unique correlation id that is not empty
    without                 at least once. Every subtask reads

`RMQSink` is at least once: a checkpoint waits until the broker has confirmed every message. The job fails if the broker cannot route or
rejects a message, or if a record cannot become a message.

**Options.** `RMQConnectionConfig.Builder` has PyFlink's options, and `set_password_file` for a file that is read at every connection. The
prefetch count bounds the messages between two checkpoints, and the messages that wait in memory.

**Errors.** These are errors before the job starts, each with its remedy: an unreachable broker, a wrong password, a missing vhost, queue,
exchange or right. At run time, the connector reconnects for half a minute. A deleted queue fails the job at once.

**Sizing.** Each subtask has one connection, with a thread that answers heartbeats. An id takes 16 bytes in a
checkpoint. The checkpoint has the ids of messages read since the last one, and of messages acknowledged within
`keep_ids`.
"""
