"""Servers, a cluster and images for development and tests.

This package is not shipped. Nothing under ``runtime/`` or ``operator/`` may import it. The modules of the list below use only
the standard library, so that they run before anything else of the project is installed. ``servers.kafka`` also uses
Kafka's client. The demo, the prose check and the other servers need the project's dependencies.

- ``servers.s3``: a real S3 server on this machine.
- ``servers.kafka``: real Kafka brokers on this machine.
- ``devcluster``: a real one-node Kubernetes on this machine.
- ``images``: the container images, built without a registry.
- ``gobuild``: builds each Go program once, into a cache outside the clone.
- ``mavenjars``: fetches pinned jars once, into the same cache.
- ``processes``: finds servers that outlive the command that started them.
"""
