"""What tables of Parquet files have in common: Delta Lake and Iceberg, as sinks and sources.

**Files first, then one commit.** Each subtask writes Parquet files that no table names. At a barrier they end, and what the
table's log needs to know of them goes into the checkpoint. When it is complete the JobManager's committer adds the files of all
subtasks to the table in one commit, which carries who wrote it and the checkpoint's id: a commit whose answer was lost is found
there and not repeated (`commits`). Whoever reads the table sees all rows of a checkpoint at once, or none.

**Or rows by their key** (`keys`, `upserts`): they wait in the checkpoint, and its commit puts them in the place of those with the same key.

`fields` holds a program's fields against a table's, `partitions` and `files` write, `changes` tells what a source may follow.
"""
