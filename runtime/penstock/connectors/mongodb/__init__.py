"""MongoDB as source, sink and to enrich streams, by pymongo (extra `penstock[mongodb]`). MongoDB 4.4 and later, and servers that speak its protocol.

**Guarantees.**

    MongoSource    reads the documents of a collection, once, in ranges of `_id` side by side; positions are values of `_id`: exactly. What does not change
                   meanwhile is read once; it is no snapshot of what does
    MongoSink      replaces, updates and deletes documents by `_id`, or by fields with a unique index. All of it may be done twice, so that each document ends as its last
                   write says, also after a failure. A checkpoint waits until the server has taken everything, by a majority
    MongoLookup    documents of keys, beside a stream; believed for a time

Changes (change streams) are not followed: see docs/connectors/mongodb.md.

**Options.** `url` is MongoDB's ("mongodb://user@host:27017/?replicaSet=rs0&authSource=admin", "mongodb+srv://…"), with all of pymongo's options; `password_file` names a file with the password, read at
every connection. Without `w` in the URL writes wait for a majority; without timeouts a request is lost after 20 s.

**Errors.** A server that does not answer, a wrong password, a collection that is not there where one is read, and a key without a unique index are errors before the job starts, each with what to do.
At run time a server that is lost or fails over is tried again for half a minute (`patience`). What the server refuses (a duplicate key, a validator, 16 MB) fails the job with the document and the
server's words. No document is dropped.

**Sizing.** A client for each subtask, with pymongo's threads that watch the server. A bulk is 1,000 writes or 5 MB; a write waits at most a second. A page read is 4 MB, at most 16 MB.
"""
