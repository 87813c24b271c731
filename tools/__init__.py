"""What the project needs around itself: servers, a cluster and images to develop and test against.

Nothing here is shipped, and nothing under ``runtime/`` or ``operator/`` may import it. The modules use the
standard library alone, so that they run before anything else of the project is installed; but ``kafkaserver`` uses Kafka's client.

- ``s3server``: a real S3 server on this machine.
- ``kafkaserver``: real Kafka brokers on this machine.
- ``devcluster``: a real one-node Kubernetes on this machine.
- ``images``: the container images, built without a registry.
- ``gobuild``: builds the Go programs the others need, once, into a cache outside the clone.
- ``mavenjars``: fetches pinned jars, once, into the same cache.
- ``processes``: servers that outlive the command that started them, and are found again.
"""
