"""Measurements of Penstock, and of its peers if they exist: `python -m benchmarks NAME [--records N] [--json]`.

    readings.py      the input: JSON lines of sensor readings, generated from a seed
    reference.py     the exact results, by DuckDB and by one pass in Python
    programs/        one program per system and workload, which imports nothing of this package and runs in its own process
    environments.py  a virtual environment per peer
    process_tree.py  CPU time of a process and all of its children
    execution.py     one measured run of one program
    auctions.py, nexmark_reference.py, nexmark.py  the events of Nexmark, DuckDB's results, the queries on all systems
    comparison.py    the workloads W1-W4: all systems interleaved, medians, ratios
    connectors/      the cost of a record at each connector, and with the system's client
    operator_cases.py  one operator of every kind, and the same loop in plain Python
    measures/        measures without a peer: operators, epochs, latency, cores, checkpoints, rescale, recovery, memory, start-up

Cost is CPU time per record: user and system time of all processes, from the first record to the end. A busy machine
changes it only a little. The results also have the wall-clock rate. `docs/benchmarks.md` has the measurements and results.
"""
