"""Changes of Postgres tables, as the server's log has them: the rows that are there, then every insert, update and delete.

**How.** The first start makes a replication slot, which keeps the log from there on. Then rows are read in ranges of the key, side by side,
each range in a snapshot of its own (`visibility`), which the range's position names. The stream begins at the slot; of a row's changes those that its range's
snapshot had seen are left out. So there is no gap and nothing comes twice, whatever dies in between: a range that is read on after a failure has another
snapshot for the rest, and that is all. (An exported snapshot would end with its connection, and everything would have to be read again.)

**Position** of the stream: the end of the last transaction that was read whole, and how many changes of the next one were. The slot is told only what a
completed checkpoint has, so the server keeps what an older one needs.

**Errors.** A slot that the server has given up (`max_slot_wal_keep_size`), that is gone, or that is further than the job's position says
which part of the log is lost. Schemas that change, values that the log leaves out and TRUNCATE are errors or not, as the source says.
"""
