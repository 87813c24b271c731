"""Change data capture from the log of Postgres: the existing rows of tables, then every insert, update and delete.

**How.** The first start creates a replication slot. The server then keeps its log from that point. Next, the source reads the existing rows
in ranges of the key, in parallel. Each range has its own snapshot, and the range's position names this snapshot (`visibility`). Last, the
source reads the log from the slot. It skips a change if the snapshot of the row's range already contains the change.

The source therefore misses no change and emits no change twice, whatever fails. If a range continues after a failure, a new snapshot
covers the rest of the range. One exported snapshot for all ranges would not work: it ends with its connection. After a failure, the source
would have to read all rows again.

**Position** of the stream: the end of the last transaction that was read completely, and how many changes of the next transaction were
read. The source confirms the slot only up to the position in a completed checkpoint. The server thus keeps all log that the checkpoint
needs.

**Errors.** The source fails if the slot is missing or is beyond the job's position, or if the server has deleted the slot's log
(`max_slot_wal_keep_size`). The error names the lost part of the log. The settings of the source decide whether these are errors: changes
of the schema, values that the log leaves out, and TRUNCATE.
"""
