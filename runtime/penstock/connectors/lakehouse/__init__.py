"""The shared parts of tables of Parquet files: sinks and sources for Delta Lake and Iceberg.

**Files first, then one commit.** Each subtask writes Parquet files that the table's log does not list yet. A checkpoint barrier closes
these files, and their log entries go into the checkpoint. When the checkpoint is complete, the JobManager's committer adds the files of
all subtasks to the table in one commit. The commit carries the writer's name and the checkpoint's id. If the answer to a commit is lost,
the committer finds the commit by this note and does not repeat it (`commits`). A reader of the table sees all rows of a checkpoint or
none.

**Sinks with a key** (`keys`, `upserts`) replace rows. The checkpoint stores the new rows. The checkpoint's commit replaces the table's
rows with the same keys.

`settings`, `sink`, `log` and `source` are the bases of the sinks and sources. `fields` compares a program's fields with a table's
columns. `partitions` and `files` write the data files. `changes` decides which commits a source reads.
"""
