"""The manifest (`_metadata`): a checkpoint or savepoint exists when this file exists.

The manifest is JSON. So people can read it without the engine, and it cannot carry code. The manifest is written last,
with put-if-absent, when all files that it names are durable. The paths in a checkpoint's manifest are relative to the
job's checkpoint root. The paths in a savepoint's manifest are relative to the savepoint's folder, so that a savepoint
can be moved.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

FORMAT_VERSION = 3
"""The format of manifests that this version writes.

1: the first format.
2: a file may be a part of an object (`offset`).
3: operators describe what their state means (`OperatorInfo.meaning`).

A version that reads one format also reads all older formats.
"""


class OperatorInfo(msgspec.Struct, frozen=True):
    """The operator's description in the graph when the snapshot was taken."""

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    states: dict[str, dict[str, Any]] = {}
    """Registered keyed states: name -> {"kind", "schema", …}."""
    meaning: dict[str, Any] = {}
    """Description of what the operator's state means (`penstock.graph.state_meaning`). It is empty before format 3."""


class SplitPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A split and its read position. `watermark`: the split's watermark in ms. None before the first record."""

    id: str
    properties: dict[str, Any]
    position: Any = None
    watermark: int | None = None
    finished: bool = False
    size: int = 0
    generator: Any = None
    """State of the split's watermark generator, so that event time continues from the same point."""
    files: list[dict[str, Any]] = []
    """Files of the split that are stored with the state. Empty if the split is read from another place. Each file is
    {"path", "size", "checksum"} as in a keyed handle.
    """


class SourceState(msgspec.Struct, frozen=True):
    """A source's splits with their positions, and the enumerator's state for further discovery."""

    splits: list[SplitPosition] = []
    enumerator: Any = None


class OperatorState(msgspec.Struct, frozen=True):
    """State of one operator, with all subtasks in order."""

    keyed: list[dict[str, Any]] = []
    operator: list[dict[str, Any]] = []
    """Result of `OperatorStateBackend.snapshot` for each subtask."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=False):
    """The content of a checkpoint or savepoint, with the name of every file that it needs.

    The checkpoint or savepoint is complete when its manifest is stored. Sizes are in bytes, times in ms since the
    epoch. docs/checkpoint-protocol.md defines the protocol.
    """

    format_version: int
    kind: Literal["checkpoint", "savepoint"]
    job_id: str
    job_name: str
    checkpoint_id: int
    leader_epoch: int
    trigger_timestamp: int
    complete_timestamp: int
    parallelism: int
    max_parallelism: int
    graph_fingerprint: str
    operators: list[OperatorInfo]
    sources: dict[str, SourceState]
    """Sources by uid."""
    states: dict[str, OperatorState]
    """Operator states by uid."""
    commits: dict[str, list[Any]] = {}
    """Committables to commit (again) when this manifest is restored, by uid of the sink."""
    state_bytes: int = 0
    uploaded_bytes: int = 0
    penstock_version: str = ""
    is_final: bool = False
    """Whether the snapshot was taken after the last record of a bounded job or by `stop --drain`. If True, no record is
    left to process.
    """
    is_drained: bool = False
    """Whether `stop --drain` took the snapshot, so that windows have fired at the final watermark. A successor
    completes the stop and runs no job.
    """
    plans: dict[str, Any] = {}
    """Plans of the job's SQL statements, so that a restart does not plan them again. Only `penstock.sql` reads the content."""
