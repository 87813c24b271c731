"""OpenSearch and Elasticsearch as a sink, by bulk requests over HTTP; httpx, a main dependency, asks. OpenSearch, and Elasticsearch 7 and later.

**Guarantees.** At least once: a checkpoint waits until the server has taken everything. Documents with ids of their own replace themselves, so that each ends as its last action
says, also after a failure: exactly once for whoever reads documents by what is in them. Without `_id` the server makes one up, and after a failure a document may be there twice.

**Options.** `hosts` are URLs, asked in turn; `user` with `password_file`, or `api_key_file`, read at every request; `ca_file` for a private certificate authority; the sizes of bulks.

**Errors.** A server that does not answer or is no OpenSearch, a wrong password, and versions that are too old are errors before the job starts. At run time what passes by itself (a lost or overloaded
node, a full queue, an index without its shards or locked for lack of disk) is tried again for half a minute (`patience`); what the mapping refuses fails the job with index, id and the
server's reason. No document is dropped.

**Sizing.** A connection for each subtask; a bulk is 1,000 actions or 5 MB. An action waits at most a second.
"""
