"""Sources and sinks: how records enter a job and leave it.

What a connector promises is in `source` (splits and positions) and `sink` (writers and the two-phase commit); the other
modules are connectors. `formats` turns bytes into records and back, `file` reads and writes files on any file system.

This package knows batches, errors, types, storage, and the functions and state that a sink may be made of. It knows nothing
of the JobManager or of the exchanges; of Spark knows `spark` alone, whose DataFrames are read and written by jobs of Spark's own.
"""
