"""The command line, `penstock`.

    main         the application and its commands
    run          run a program here, in the foreground or detached
    jobs         list, info, savepoint, stop, cancel, rescale, checkpoints
    top, live    the live view
    cluster      what a cluster has
    roles        master, worker, check: what the containers of a deployment run
    state        read state from a savepoint
    client       the REST client; `connection` makes it from -m and the environment
    engine       the seam to `penstock.jobmanager.process.launch`, imported only by the commands that start something
    output       how things are written; `errors` for what went wrong

Importing this package imports neither Spark nor the engine, so that `penstock list` answers quickly.
"""
