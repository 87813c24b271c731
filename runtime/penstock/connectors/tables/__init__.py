"""The protocol of the connectors for tables of a database, without a driver. `postgres` and `sql` add drivers and statements.

server          connections, retries and errors
columns         the definition of a table, and the check that a job's fields fit it
source          ranges of a key, which are read page by page
sink            the settings of a sink, its writer and its committer
row_writers     buffers of rows in a subtask
commits         the rows of a checkpoint and its id, in one transaction
lookup          rows for the keys of a stream
"""
