"""Amazon Kinesis Data Streams: streams as source and sink, by botocore (extra `penstock[kinesis]`). PyFlink's names for both are there, too.

**Guarantees.** `KinesisSource` reads exactly: positions are sequence numbers of shards in the checkpoints, and places
within records that the Kinesis Producer Library has put together. Shards that are split or merged are read to their end before
the shards that follow them, so that records of a partition key keep their order. `KinesisStreamsSink` promises at least once: a checkpoint waits until the
stream has every record. Records that Kinesis takes later than others of their request lose their order.

**Options.** Streams by name, region and, for other services that speak the protocol, an endpoint. Credentials are found as by every AWS client.

**Errors.** A stream that is missing, keys that are wrong, a right that is missing are errors before the job starts. A service that is lost or throttles is asked again for
`patience`. A record that no stream takes fails the job by its name. So do records that the
stream may have dropped before they were read, unless `on_lost="continue"`.

**Sizing.** A thread for each shard, which asks once in 0.2 s at the most: Kinesis lets a shard be read five times a second, by all its readers together, and
2 MB a second.
"""
