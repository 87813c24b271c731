"""Settings of `KinesisSource`, which its enumerator and its readers use."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, StreamFormat
from penstock.connectors.kinesis.decoder import DataDecoder
from penstock.connectors.kinesis.stream import LATEST, TRIM_HORIZON, stream_of
from penstock.connectors.messages.source import MessageSource, check_choice, error_tag_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.common.serialization import DeserializationSchema
    from penstock.connectors.core.aws import AwsTarget


class KinesisSettings(MessageSource):
    """The settings of a `KinesisSource`. The docstring of that class describes the arguments."""

    def __init__(
        self,
        streams: str | Sequence[str],
        deserialization_schema: DeserializationSchema | StreamFormat,
        *,
        region: str = "",
        endpoint: str | None = None,
        start: str | int | datetime = "latest",
        discovery_interval: TimeLike = 10_000,
        on_error: str = "fail",
        error_tag: Any = MALFORMED_RECORDS,
        on_lost: str = "fail",
        patience: TimeLike = 30_000,
    ) -> None:
        super().__init__(deserialization_schema, error_tag_of(on_error, error_tag))
        check_choice("on_lost", on_lost, "fail", "continue")
        self.accepts_loss = on_lost == "continue"
        self.streams = list(dict.fromkeys([streams] if isinstance(streams, str) else streams))
        self._targets = {
            name: stream_of(name, region, endpoint, as_millis(patience, "patience") / 1000) for name in self.streams
        }
        if not self.streams:
            raise InvalidJob("a Kinesis source needs a stream", remedy="pass the name of a stream")
        self.start_ms = _start_ms(start)
        self.discovery_ms = as_millis(discovery_interval, "discovery_interval")
        self.decoder("", "")

    def target(self, stream: str) -> AwsTarget:
        return self._targets[stream]

    def decoder(self, stream: str, shard: str) -> DataDecoder:
        return DataDecoder(stream, shard, self.schema, rejects=self.rejects)


def _start_ms(start: Any) -> int:
    if isinstance(start, str) and start.lower() in ("latest", "trim_horizon"):
        return LATEST if start.lower() == "latest" else TRIM_HORIZON
    if isinstance(start, datetime):
        return int(start.timestamp() * 1000)
    if isinstance(start, int) and not isinstance(start, bool) and 0 < start <= time.time() * 1000:
        return start
    raise InvalidJob(
        f"start={start!r}", remedy="pass 'latest', 'trim_horizon', or a time in the past: a datetime, or ms since 1970"
    )
