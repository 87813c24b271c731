"""The cost of a record at each connector, and with the system's client library: `python -m benchmarks connectors`.

    records.py   the records: three fields, 57 bytes as a line of JSON
    cost.py      CPU time and wall clock of a piece of work in this process
    case.py      one row of the tables: Penstock's way and the bare client's
    job.py       a job in this process that reads from a source, or writes to a sink
    systems/     a module for each system, which starts its server and defines the cases
    tables.py    writes the figures into the pages: `python -m benchmarks.connectors.tables FILE`

Everything except the servers runs in this process. The CPU time of the servers does not count.
"""
