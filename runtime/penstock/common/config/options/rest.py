"""The REST API and its TLS settings."""

from __future__ import annotations

from penstock.common.config.option import flag_option, int_option, text_option

REST_PORT = int_option("rest.port", 8081, "Port of the REST API and the dashboard. -1 disables both.", minimum=-1)
REST_ADDRESS = text_option(
    "rest.address",
    "localhost",
    "Host or URL of a session cluster, or those of all its masters, separated by commas. If it is set, `penstock run` sends "
    "programs there. It has no other effect.",
)
REST_BIND_ADDRESS = text_option("rest.bind-address", "localhost", "Address on which the REST API listens.")
REST_SSL_ENABLED = flag_option(
    "rest.ssl.enabled",
    False,
    "Serve the REST API and the dashboard over HTTPS only (TLS 1.2 or 1.3). Needs rest.ssl.certificate-file and "
    "rest.ssl.key-file.",
    "security.ssl.rest.enabled",
)
REST_SSL_CERTIFICATE_FILE = text_option(
    "rest.ssl.certificate-file",
    None,
    "PEM file with the certificate of the REST API, followed by its intermediate certificates. The server loads a "
    "renewed file without a restart.",
)
REST_SSL_KEY_FILE = text_option(
    "rest.ssl.key-file", None, "PEM file with the private key of the certificate, without a passphrase."
)
REST_SSL_CA_FILE = text_option(
    "rest.ssl.ca-file",
    None,
    "PEM file with CA certificates. Programs with a remote environment verify the server with it; "
    "the server verifies client certificates with it. Not set: clients use the system's CAs.",
)
REST_SSL_SECRET_NAME = text_option(
    "rest.ssl.secret-name",
    None,
    "Only for the Kubernetes operator: Secret with tls.crt, tls.key and ca.crt, which the operator mounts for the "
    "REST API of a FlinkJob. It replaces the three rest.ssl.*-file keys.",
)
REST_SSL_CLIENT_AUTHENTICATION = flag_option(
    "rest.ssl.client-authentication",
    False,
    "Mutual TLS: a client of the REST API must present a certificate that a CA of rest.ssl.ca-file has signed. "
    "The bearer token is still required.",
    "security.ssl.rest.authentication-enabled",
)
