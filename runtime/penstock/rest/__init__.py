"""The REST API: Flink's paths and shapes over one seam to the engine.

    facts      what the engine says of itself: small frozen dataclasses, in the engine's words
    gateway    the seam: `ClusterGateway`, which gives facts and takes requests; the JobManager implements it
    models     Flink's JSON as pydantic models; also what clients (the command line, the operator) read answers with
    views      facts -> models, pure functions
    routes     paths -> gateway and views
    app        the application: routes, token, errors, OpenAPI
    server     uvicorn in a thread

`models` and `facts` import nothing of the engine and nothing of the web framework, so that a client can use them alone.
"""
