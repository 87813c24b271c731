"""The manifest: the one file that makes a checkpoint or savepoint exist (`_metadata`).

JSON, so that it is readable without the engine and cannot carry code. Written last, with put-if-absent; everything it
names was durable before. Paths in a checkpoint's manifest are relative to the job's checkpoint root, in a savepoint's
to the savepoint's own folder, so a savepoint can be moved.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

FORMAT_VERSION = 2
"""2: a file may be a part of an object (`offset`). What reads 2 reads 1."""


class OperatorInfo(msgspec.Struct, frozen=True):
    """What the graph said of an operator when the snapshot was taken."""

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    states: dict[str, dict[str, Any]] = {}
    """Registered keyed states: name -> {"kind", "schema", …}."""


class SplitPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A split and how far it was read. `watermark`: of this split, ms; None before the first record."""

    id: str
    properties: dict[str, Any]
    position: Any = None
    watermark: int | None = None
    finished: bool = False
    size: int = 0
    generator: Any = None
    """State of the split's watermark generator, so that the clock goes on where it stood."""
    files: list[dict[str, Any]] = []
    """What the split is read from, where that lies beside the state: {"path", "size", "checksum"} as in a keyed handle."""


class SourceState(msgspec.Struct, frozen=True):
    """A source's splits with their positions, and what its enumerator needs to go on discovering."""

    splits: list[SplitPosition] = []
    enumerator: Any = None


class OperatorState(msgspec.Struct, frozen=True):
    """State of one operator, of all subtasks in order."""

    keyed: list[dict[str, Any]] = []
    operator: list[dict[str, Any]] = []
    """Per subtask what `OperatorStateBackend.snapshot` gave."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=False):
    """All that a checkpoint or savepoint is: it is complete when its manifest is stored, and names every file it needs.

    Sizes in bytes, times in ms since the epoch. The protocol is in docs/checkpoint-protocol.md.
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
    """By uid."""
    states: dict[str, OperatorState]
    """By uid."""
    commits: dict[str, list[Any]] = {}
    """By uid of the sink: committables that must be (re)committed when this manifest is restored."""
    state_bytes: int = 0
    uploaded_bytes: int = 0
    penstock_version: str = ""
    is_final: bool = False
    """Taken after the last record of a bounded job or by stop --drain: nothing is left to process."""
    is_drained: bool = False
    """By stop --drain: windows have fired at the final watermark. Whoever takes over completes the stop, and goes on with nothing."""
