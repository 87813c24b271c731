"""Kafka: topics as source and sink, exactly once from end to end, without a JVM (extra `penstock[kafka]`).

**Guarantees.** `KafkaSource` gives each message once: its offsets are in the job's checkpoints and nowhere else. What is
committed to the group is for those who watch it. `KafkaSink` promises what its `DeliveryGuarantee` says:

    EXACTLY_ONCE    what is written between two checkpoints is a transaction; the JobManager commits it when the checkpoint is
                    complete. Readers with `isolation.level=read_committed` see each record once, others also what is aborted
    AT_LEAST_ONCE   a checkpoint waits until the brokers have taken everything; what came after it is written again
    NONE            nobody waits for the brokers

**How a transaction outlives its writer.** librdkafka cannot commit what another process has begun. Kafka's protocol can: it asks
for the transactional id, the producer id and the epoch, which the committable carries (`sink.coordinator_client`). Every
transaction has an epoch of its own (`sink.transaction`), so a commit that comes late or twice touches nothing else, on brokers of
any `transaction.version`; and whoever restores can tell a transaction that was committed from one that is lost.

**Options** are librdkafka's properties, by `set_property`; for the most part they are named as Kafka's own. Secrets come from
files: `sasl.password.file`, `ssl.key.password.file`, `sasl.oauthbearer.token.file` (`client`).

**Errors.** `SourceError` and `SinkError` name topic, partition, offset or transaction, the reason, and what to do. What a client
mends by itself (a leader that moves, a broker that is away) is not an error until its time-out.

**Sizing.** A source subtask holds at most 16 MiB of fetched messages (`queued.max.messages.kbytes`), a sink subtask 64 MiB of
messages that are not taken yet (`queue.buffering.max.kbytes`). A sink uses two to four transactional ids for each subtask.
`transaction.timeout.ms` (10 min unless set) must exceed the longest time from the first record after a checkpoint to the commit
after a recovery; brokers allow 15 min unless `transaction.max.timeout.ms` says more.
"""
