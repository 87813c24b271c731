"""What a record costs at each connector, beside the system's own client library doing the same: `python -m benchmarks connectors`.

    records.py   the records: three fields, 57 bytes as a line of JSON
    cost.py      CPU time and wall clock of a piece of work in this process
    case.py      one row of the tables: Penstock's way and the bare client's
    job.py       a job in this process that reads from a source, or writes to a sink
    systems/     a module for each system: starts its server, says what is measured
    tables.py    puts the figures into the pages: `python -m benchmarks.connectors.tables FILE`

Everything runs in this process but the servers, whose CPU time does not count.
"""
