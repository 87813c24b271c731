"""The connections of the REST API: the socket, its limits and TLS."""
