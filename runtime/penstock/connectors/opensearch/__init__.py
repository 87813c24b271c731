"""OpenSearch and Elasticsearch as a sink: bulk requests over HTTP with httpx, a main dependency. It supports OpenSearch, and
Elasticsearch 7 and later.

**Guarantees.** At least once: a checkpoint waits until the server has accepted all actions. A repeated write with an explicit id replaces
the same document. So each document ends in the state of its last action, even after a failure, and readers see the content exactly once.
Without `_id`, the server generates an id, and a document may be duplicated after a failure.

**Options.** `hosts` are URLs, and each request goes to the next host. Set either `user` and `password_file`, or `api_key_file`. The sink
reads these files at every request. `ca_file` is for a private certificate authority. Bulk sizes can be set too.

**Errors.** Before the job starts, these are errors: an unreachable server, a server of another product, a wrong password,
and a version that is too old. At run time the sink retries temporary failures for half a minute (`patience`). Such failures are a lost
or overloaded node, a full queue, missing shards, and an index that is locked because a disk is full. If the mapping rejects a document, the
job fails. The error has the index, the id and the server's reason. No document is dropped.

**Sizing.** Each subtask has a connection. A bulk is 1,000 actions or 5 MB. An action waits at most 1 s.
"""
