"""A stream of Kinesis."""

from __future__ import annotations

import logging

from penstock.common.errors import InvalidJob
from penstock.connectors.aws import AwsTarget

LOGGER = logging.getLogger("penstock.connectors.kinesis")


def stream_of(name: str, region: str, endpoint: str | None, patience_s: float) -> AwsTarget:
    if not name or not isinstance(name, str):
        raise InvalidJob(f"a Kinesis stream named {name!r}", remedy="give the stream's name")
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
