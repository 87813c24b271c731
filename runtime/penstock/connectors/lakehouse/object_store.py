"""What is known of an S3 server, whoever says it, for libraries that do not look where the engine's own client does."""

from __future__ import annotations

import os

from penstock.connectors.file.storage import StorageOptions

_FROM_ENVIRONMENT = {
    "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region_name": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""What a pod is told of the storage by its Secret; keys are found there by every library."""


def s3_settings(options: StorageOptions, names: dict[str, str]) -> dict[str, str]:
    """The settings that are said by the job, or else by the environment, under a library's names for them.

    Args:
        options: fsspec's, of the job's configuration.
        names: of `key`, `secret`, `token`, `endpoint_url` and `region_name`.

    >>> s3_settings({"key": "k", "client_kwargs": {"region_name": "eu-north-1"}}, {"key": "id", "region_name": "region"})
    {'id': 'k', 'region': 'eu-north-1'}
    """
    client = {**options.get("client_kwargs", {}), **options}
    for setting, variables in _FROM_ENVIRONMENT.items():
        if not client.get(setting):
            client[setting] = next((os.environ[name] for name in variables if os.environ.get(name)), "")
    return {name: str(client[setting]) for setting, name in names.items() if client.get(setting)}
