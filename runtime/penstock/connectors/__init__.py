"""Sources and sinks: how records enter a job and leave it.

`core` has the interfaces: `source` (splits and positions) and `sink` (writers and the two-phase commit). `simple` has
connectors without a system behind them. `formats` turns bytes into records and back. `tables` is the protocol that
`postgres` and `sql` share. `lakehouse` is the protocol that `delta` and `iceberg` share. Every other folder is one
system, such as `file` or `kafka`.

This package knows batches, errors, types, storage, and the functions and state that a sink may use. It does not import the
JobManager or the exchanges. Only `spark` uses Spark: it reads and writes DataFrames with Spark's own jobs.
"""
