"""Redis, with redis-py (extra `penstock-streaming[redis]`). It reads and writes Redis streams, writes keys, and looks up keys.

It supports Redis 7 and later, and Valkey.

**Guarantees.**

    RedisStreamSource                reads streams exactly once: entry ids are the positions. It needs no consumer group
    RedisStreamSink, EXACTLY_ONCE    stores entries in the checkpoint. When the checkpoint is complete, the JobManager adds the entries
                                     with a script. In the same step, the script checks and records how many entries of which
                                     checkpoint it has added (`committer`)
    RedisStreamSink, AT_LEAST_ONCE   subtasks add entries. A checkpoint waits until the server has accepted all of them
    RedisLookup                      looks up strings or hashes by key, to enrich a stream. It caches answers for a limited time
    RedisSink sends idempotent commands (SET, HSET, ZADD, DEL, …) in order, so the last command wins

Accepted data is as durable as the server's settings make it. If a server with `appendfsync everysec` crashes, it loses
up to one second of entries and notes, and the job does not write these again. If the server has lost entries that the
job has read, the source raises an error.

**Options.** `url` is a URL for redis-py ("redis://user@host:6379/0", "rediss://…?ssl_ca_certs=…"). `password_file` names a file with the
password. The file is read at every connection.

**Errors.** Before the job starts, these are errors: an unreachable server, a wrong password, a missing stream or right, and a key of
another type. A replica or a cluster is an error too. Each error has a remedy. If the server is lost, loading or full at run time, the
connector retries for half a minute (`patience`). It does not retry a command that the server rejects.

**Sizing.** Each subtask has one connection, and the JobManager has one. If the guarantee is EXACTLY_ONCE, all entries pass through the
JobManager's process, 1,000 per step.
"""
