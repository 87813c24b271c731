"""A Kinesis stream as a target of AWS calls."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.core.aws import AwsTarget

TRIM_HORIZON, LATEST = 0, -1
"""Special start times of a source. Other values are times in ms since 1970."""
LOGGER = logging.getLogger("penstock.connectors.kinesis")


def stream_of(name: str, region: str, endpoint: str | None, patience_s: float) -> AwsTarget:
    if not name or not isinstance(name, str):
        raise InvalidJob(f"a Kinesis stream named {name!r}", remedy="pass the stream's name")
    return AwsTarget(
        "kinesis",
        f"stream {name!r}",
        "kinesis",
        region,
        endpoint,
        missing=("ResourceNotFound",),
        rights="kinesis:DescribeStreamSummary; to readers kinesis:ListShards, kinesis:GetShardIterator and kinesis:GetRecords; to writers kinesis:PutRecords",
        patience_s=patience_s,
        logger=LOGGER,
    )


def shards_of(target: AwsTarget, client: Any, stream: str) -> list[dict[str, Any]]:
    """Return all shards that the service lists.

    Raises:
        SourceError: the service does not list the shards.
    """
    shards: list[dict[str, Any]] = []
    request: dict[str, Any] = {"StreamName": stream}
    while True:
        some, token = target.retry(SourceError, "cannot be read", partial(_listed, client, request))
        shards += some
        if not token:
            return shards
        request = {"NextToken": token}


def _listed(client: Any, request: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    answer = client.list_shards(**request)
    return answer["Shards"], answer.get("NextToken", "")
