"""The command line, `penstock`.

    main         the application
    commands     its commands, one module for each group: run, jobs, savepoint, state, cluster, roles, top
    live         the live view of `top`; `dashboard` draws it
    client       the REST client; `connection` makes it from -m and the environment
    engine       the seam to `penstock.jobmanager.process.launch`, imported only by the commands that start something
    output       how things are written; `errors` for what went wrong

Importing this package imports neither Spark nor the engine, so that `penstock list` answers quickly.
"""
