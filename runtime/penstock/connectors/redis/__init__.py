"""Redis: streams as source and sink, keys as sink and to enrich streams, by redis-py (extra `penstock[redis]`). Redis 7 and later, or Valkey.

**Guarantees.**

    RedisStreamSource                reads streams by the ids of their entries, which are the positions: exactly. No consumer group is needed
    RedisStreamSink, EXACTLY_ONCE    entries wait in their checkpoint; when it is complete the JobManager adds them by a script that notes, in the same step, how
                                     many of which checkpoint are in, and looks first (`committer`)
    RedisStreamSink, AT_LEAST_ONCE   subtasks add them; a checkpoint waits until the server has taken everything
    RedisLookup                      strings or hashes of keys, beside a stream; believed for a time
    RedisSink                        commands that may be carried out twice (SET, HSET, ZADD, DEL, …), in order: each key ends as its last ones say

What the server has taken is as durable as the server makes it: with `appendfsync everysec` one that dies forgets up to a second, entries and notes alike, and
nobody writes them again. A server that has forgotten what was read of it is an error of the source.

**Options.** `url` is redis-py's ("redis://user@host:6379/0", "rediss://…?ssl_ca_certs=…"); `password_file` names a file with the password, read at every connection.

**Errors.** A server that does not answer, a wrong password, a stream or right that is missing, a key of another type, a replica and a cluster are errors
before the job starts, each with what to do. At run time a lost, loading or full server is tried again for half a minute (`patience`), a command that it
refuses is not.

**Sizing.** A connection for each subtask, one for the JobManager. Exactly once, all entries go through its one process, 1,000 in a step of the server's.
"""
