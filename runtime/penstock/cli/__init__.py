"""The command line, `penstock`.

    start        the program; `application` without commands, `main` with all of them
    commands     its commands, one module for each group: run, jobs, savepoint, state, cluster, roles, top
    live         the live view of `top`; `dashboard` draws it
    client       the REST client; `connection` creates it from -m and the environment
    engine       the interface to `penstock.jobmanager.process.launch`, imported only by the commands that start something
    output       the formats of output; `errors` for error messages

The import of this package imports neither Spark nor the engine, so that `penstock list` responds quickly.
"""
