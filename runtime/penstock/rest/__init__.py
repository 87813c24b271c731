"""The REST API: Flink's paths and shapes on one interface to the engine.

    facts      the engine's description of itself: small frozen dataclasses, in the engine's terms
    gateway    the interface `ClusterGateway`, which returns facts and accepts requests; the JobManager implements it
    models     Flink's JSON as pydantic models; clients (the command line, the operator) also parse responses with them
    views      facts -> models, pure functions
    routes     paths -> gateway and views
    app        the application: routes, token, errors, OpenAPI
    server     uvicorn in a thread
    transport  the connections of the server: socket, limits, TLS

`models` and `facts` import neither the engine nor the web framework, so that a client can use these packages alone.
"""
