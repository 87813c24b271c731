"""The settings of an S3 server, for libraries other than the engine's own client.

These libraries do not read the job's options, and they ignore some environment variables.
"""

from __future__ import annotations

import os

from penstock.connectors.file.storage import StorageOptions

_FROM_ENVIRONMENT = {
    "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region_name": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""Settings, and the environment variables that a Secret sets for them in a pod.

Access keys are left out, because every library reads the variables for them.
"""


def s3_settings(options: StorageOptions, names: dict[str, str]) -> dict[str, str]:
    """Return the settings from the job, or else from the environment, under a library's names.

    Args:
        options: fsspec options of the job's configuration.
        names: the library's names for `key`, `secret`, `token`, `endpoint_url` and `region_name`.

    >>> s3_settings({"key": "k", "client_kwargs": {"region_name": "eu-north-1"}}, {"key": "id", "region_name": "region"})
    {'id': 'k', 'region': 'eu-north-1'}
    """
    client = {**options.get("client_kwargs", {}), **options}
    for setting, variables in _FROM_ENVIRONMENT.items():
        if not client.get(setting):
            client[setting] = next((os.environ[name] for name in variables if os.environ.get(name)), "")
    return {name: str(client[setting]) for setting, name in names.items() if client.get(setting)}
