"""Amazon Kinesis Data Streams as source and sink, based on botocore (extra `penstock-streaming[kinesis]`).

The source and the sink also exist under PyFlink's names.

**Guarantees.** `KinesisSource` reads exactly once. Checkpoints have the sequence numbers of shards, and positions within records that the
Kinesis Producer Library has aggregated. If a shard is split or merged, the source reads it to its end before it reads the resulting
shards. So records of a partition key keep their order. `KinesisStreamsSink` is at least once: a checkpoint waits until the stream has
every record. If Kinesis rejects a record and accepts it in a retry, the record loses its order relative to others of its request.

**Options.** A stream has a name, a region and, for other services with the same protocol, an endpoint. The connector finds credentials
in the same places as every AWS client.

**Errors.** A missing stream, wrong keys and a missing right are errors before the job starts. The connector retries an unavailable or
throttling service for `patience`. A record that no stream accepts fails the job, and the error names the record. Records that the stream may
have dropped before they were read also fail the job, unless `on_lost="continue"`.

**Sizing.** Each shard has a thread that reads at most once in 0.2 s. Kinesis allows five reads and 2 MB per second and shard, for all
readers together.
"""
