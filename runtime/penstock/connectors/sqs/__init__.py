"""Amazon SQS: queues as source and sink, based on botocore (extra `penstock-streaming[sqs]`).

**Guarantees.** The source deletes messages when the checkpoint that contains them is complete. Until then it hides them from other
receivers. `SqsSource` has two modes:

    exactly_once=True     The checkpoint has the ids of messages that may be redelivered, and the source drops redelivered messages. One
                          subtask reads
    exactly_once=False    at least once. Every subtask reads

`SqsSink` is at least once: a checkpoint waits until SQS has every message. For a FIFO queue, use a deduplication id that depends only on
the record. Then SQS delivers each message only once within its deduplication interval of 5 minutes.

**Options.** The queue's URL also determines the region or the endpoint. The connector finds credentials in the same places as every AWS
client: environment variables, a web identity (IRSA) or the machine's role.

**Errors.** Before the job starts, these are errors: a missing queue, wrong access keys, and a missing right. Each error has a
remedy. If SQS is unavailable or overloaded, the connector retries for `patience`. If a record cannot become a message, the job
fails, and the error names the record.

**Sizing.** Each subtask has eight threads, each of which receives ten messages at once. SQS allows at most 120,000 messages of a queue in
flight (20,000 of a FIFO queue). `most_under_way` bounds the messages between two checkpoints. An id takes 16 bytes in a checkpoint.
"""
