"""Sources and sinks: how records enter a job and leave it.

What a connector promises is in `source` (splits and positions) and `sink` (writers and the two-phase commit); the other
modules are connectors. `formats` turns bytes into records and back, `file` reads and writes files on any file system.

This package knows batches, errors, types and storage. It knows nothing of Spark, of the JobManager or of the exchanges;
`spark` only describes DataFrames for the engine, which does the rest.
"""
