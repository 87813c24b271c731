"""Measurements of Penstock, beside its peers where there are any: `python -m benchmarks NAME [--records N] [--json]`.

    readings.py      the input: JSON lines of sensor readings, made from a seed
    reference.py     the exact results, by DuckDB and by one pass in Python
    programs/        one program per system and workload; they know nothing of this package and run in processes of their own
    environments.py  a virtual environment per peer
    process_tree.py  CPU time of a process and everything it starts
    execution.py     one run of one program, measured
    auctions.py, nexmark_reference.py, nexmark.py  the events of Nexmark, DuckDB's results, the queries on all systems
    comparison.py    the workloads W1-W4: all systems interleaved, medians, ratios
    connectors/      what a record costs at each connector, and with the system's own client
    operator_cases.py  one operator of every kind, and the same loop in plain Python
    measures/        what has no peer of its own: operators, epochs, latency, cores, checkpoints, rescale, recovery, memory, start-up

Cost is CPU time per record (user and system of all processes, from the first record to the end), which a busy machine
changes little; the wall-clock rate stands beside it. `docs/benchmarks.md` says what is measured and what came out.
"""
