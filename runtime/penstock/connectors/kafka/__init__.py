"""Kafka: topics as source and sink, exactly once from end to end, without a JVM (extra `penstock-streaming[kafka]`).

**Guarantees.** `KafkaSource` reads each message once. Only the job's checkpoints determine its position. It commits offsets to
the consumer group only for monitoring. `KafkaSink` gives the guarantee of its `DeliveryGuarantee`:

    EXACTLY_ONCE    All records between two checkpoints are one transaction. The JobManager commits it when the checkpoint is
                    complete. Readers with `isolation.level=read_committed` see each record once. Other readers also see
                    aborted records.
    AT_LEAST_ONCE   A checkpoint waits until the brokers have acknowledged everything. After a failure, later
                    records are written again.
    NONE            Checkpoints do not wait for the brokers.

**How a transaction outlives its writer.** librdkafka cannot commit a transaction of another process, but Kafka's protocol can.
The commit needs the transactional id, the producer id and the epoch, which are in the committable (`sink.coordinator_client`). Every
transaction has a separate epoch (`sink.transaction`). So a late or repeated commit affects no other transaction, on brokers of
any `transaction.version`. A restore can distinguish a committed transaction from a lost one.

**Options** are librdkafka's properties, set by `set_property`. Most have the same names as Kafka's own properties.
Secrets come from files:
`sasl.password.file`, `ssl.key.password.file`, `sasl.oauthbearer.token.file` (`client`).

**Errors.** `SourceError` and `SinkError` name the topic, partition, offset or transaction, the reason, and the remedy. A client
recovers from some problems itself (a moved leader, an unavailable broker). These problems become errors only after the
client's timeout.

**Sizing.** A source subtask holds at most 16 MiB of fetched messages (`queued.max.messages.kbytes`). A sink subtask holds at
most 64 MiB of unacknowledged messages (`queue.buffering.max.kbytes`). A sink uses two to four transactional ids for each
subtask. `transaction.timeout.ms` (10 min by default) must exceed the longest time from the first record after a checkpoint to
the commit after a recovery. Brokers allow 15 min unless `transaction.max.timeout.ms` is larger.
"""
