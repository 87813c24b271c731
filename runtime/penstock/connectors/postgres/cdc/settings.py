"""Settings of `PostgresCdcSource`, which its enumerator and its readers use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.postgres.cdc.changes import ChangeRecords

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.formats.shape import RecordShape
    from penstock.connectors.postgres.client import Server

CHOICES = {
    "startup": ("initial", "latest"),
    "output": ("rows", "changes"),
    "mode": ("upsert", "all"),
    "truncate": ("fail", "skip"),
    "unchanged": ("fail", "none"),
    "schema_changes": ("fail", "follow"),
}
"""Values of the builder's choices. The first is the default."""


class CdcSettings:
    """The settings of a `PostgresCdcSource`. See that class for the arguments."""

    def __init__(
        self,
        server: Server,
        tables: Mapping[str, RecordShape | None],
        slot: str,
        publication: str,
        choices: Mapping[str, str],
        *,
        creates_publication: bool = False,
        splits: int | None = None,
        heartbeat_ms: int = 5_000,
    ) -> None:
        chosen = {name: values[0] for name, values in CHOICES.items()} | dict(choices)
        self.server = server
        self.tables = dict(tables)
        self.slot = slot
        self.publication = publication
        self.creates_publication = creates_publication
        self.reads_rows = chosen["startup"] == "initial"
        self.output = chosen["output"]
        self.mode = chosen["mode"]
        self.follows = chosen["schema_changes"] == "follow"
        self.form = "row" if self.output == "rows" else None
        self.splits = splits
        self.heartbeat_ms = heartbeat_ms
        self.records = ChangeRecords(self.output, self.mode, chosen["truncate"], chosen["unchanged"])
