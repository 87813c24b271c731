"""MongoDB as source, as sink and to enrich streams, with pymongo (extra `penstock-streaming[mongodb]`). It supports MongoDB 4.4 and later, and
servers with its protocol.

**Guarantees.**

    MongoSource    reads the documents of a collection once, in parallel ranges of `_id`. Positions are values of `_id`. It reads each
                   document exactly once if the document does not change during the read. The result is not a snapshot
    MongoSink      replaces, updates and deletes documents by `_id`, or by fields with a unique index. All writes are idempotent. So each
                   document ends in the state of its last write, even after a failure. A checkpoint waits until a majority of the
                   servers has accepted all writes
    MongoLookup    looks up documents by key, to enrich a stream. It caches answers for a limited time

The connector does not follow changes (change streams): see docs/connectors/mongodb.md.

**Options.** `url` is MongoDB's ("mongodb://user@host:27017/?replicaSet=rs0&authSource=admin", "mongodb+srv://…"), with all of pymongo's
options. `password_file` names a file with the password. The file is read at every connection. Without `w` in the URL, writes wait for a
majority. If the URL sets no timeouts, a request counts as lost after 20 s without an answer.

**Errors.** Before the job starts, these are errors: an unreachable server, a wrong password, a missing collection to read, and a key
without a unique index. Each error has a remedy. If the server is lost or fails over at run time, the connector retries for half a minute
(`patience`). If the server rejects a document (a duplicate key, a validator, more than 16 MB), the job fails. The error has the document
and the server's message. No document is dropped.

**Sizing.** Each subtask has a client, with pymongo's threads that monitor the server. A bulk is 1,000 writes or 5 MB. A write waits at
most 1 s. A page that the source reads has about 4 MB, and at most 16 MB.
"""
