"""Tokens and secrets."""

from __future__ import annotations

from penstock.common.config.option import flag_option, list_option, text_option

REST_TOKEN_FILE = text_option(
    "security.rest.token-file",
    None,
    "File with the bearer token that the REST API requires. Not set: no token is required.",
)
REST_READER_TOKEN_FILE = text_option(
    "security.rest.reader-token-file",
    None,
    "File with a second token for read-only access. Needs security.rest.token-file.",
)
REST_LOCAL_TOKEN = flag_option(
    "security.rest.local-token",
    True,
    "For python job.py without security.rest.token-file. true: the REST API requires a generated token, which "
    "commands of the same user find automatically. false: every user of the machine can change the job.",
)
REST_ALLOWED_HOSTS = list_option(
    "security.rest.allowed-hosts",
    "Host names that the REST API accepts in requests, in addition to localhost, IP addresses and the name of the "
    "machine. *.example.com allows all subdomains. If this list is empty and a token is required, the REST API "
    "accepts every name.",
)
SPARK_SECRET_FILE = text_option(
    "security.spark.secret-file",
    None,
    "File with the secret of the master and its workers. They authenticate each other with it and derive their TLS "
    "keys from it. They do not start without it.",
)
