"""Amazon SQS: queues as source and sink, by botocore (extra `penstock[sqs]`).

**Guarantees.** Messages are deleted when the checkpoint that has them is complete; until then the source keeps them from coming again. `SqsSource` promises

    exactly_once=True       the checkpoint has the ids of messages that may come again, and those that do are dropped; one subtask reads
    without                 at least once; every subtask reads

`SqsSink` promises at least once: a checkpoint waits until SQS has every message. Into a FIFO queue a deduplication id that depends on the record alone makes
that once, within SQS's five minutes.

**Options.** The queue is named by its URL, which says region or endpoint, too. Credentials are found as every AWS client finds them: variables, a web identity
(IRSA), the machine's role.

**Errors.** A queue that is missing, keys that are wrong, a right that is missing are errors before the job starts, each with what to do. A service that is lost
or overloaded is asked again for `patience`. A record that no message can be made of fails the job by its name.

**Sizing.** Eight threads for each subtask, each of which receives ten messages at once. SQS has at most 120,000 messages of a queue under way (20,000 of a FIFO queue):
`most_under_way` bounds what is read between two checkpoints. Ids take 16 bytes each in a checkpoint.
"""
