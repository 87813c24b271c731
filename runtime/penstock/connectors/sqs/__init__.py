"""Amazon SQS: queues as source and sink, based on botocore (extra `penstock-streaming[sqs]`).

**Guarantees.** The source deletes messages when the checkpoint that contains them is complete. Until then it hides them from other
receivers. `SqsSource` has two modes:

    exactly_once=True       The checkpoint has the ids of messages that may be redelivered, and the source drops redelivered ones. One
                            subtask reads
    without                 at least once. Every subtask reads

`SqsSink` is at least once: a checkpoint waits until SQS has every message. For a FIFO queue, use a deduplication id that depends only on
the record. Then SQS delivers each message only once within its deduplication interval of 5 minutes.

**Options.** The queue's URL also determines the region or the endpoint. The connector finds credentials in the same places as every AWS
client: environment variables, a web identity (IRSA) or the machine's role.

**Errors.** A missing queue, wrong keys and a missing right are errors before the job starts, each with its remedy. The
connector retries an unavailable or overloaded service for `patience`. A record that cannot become a message fails the
job, and the error names it.

**Sizing.** Each subtask has eight threads, each of which receives ten messages at once. SQS allows at most 120,000 messages of a queue in
flight (20,000 of a FIFO queue). `most_under_way` bounds the messages between two checkpoints. An id takes 16 bytes in a checkpoint.
"""
