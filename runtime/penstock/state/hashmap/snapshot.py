"""Snapshots of the hashmap backend: the data that is frozen while processing is stopped, and the files of the upload."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.state.hashmap.segment_chain import Chain, StateFile
from penstock.state.snapshot_format.rows import DROP
from penstock.state.snapshot_format.segment import SegmentWriter, StateInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.files import StateFileWriter
    from penstock.state.hashmap.segment_chain import Plan
    from penstock.state.hashmap.slices import Round
    from penstock.state.hashmap.table import Changes, Table
    from penstock.state.key_groups import KeyGroupRange
    from penstock.state.snapshot_format.rows import FrozenRows
    from penstock.state.snapshot_format.segment import StoredBlock

BACKEND = "hashmap"
FORMAT = 1
FORMAT_WITH_ORIGINS = 2
"""Format of a handle that names parts of a state with different descriptions (`rocksdb.origins`). Older versions refuse this format."""
UPLOAD_THREADS = 4
FILE_ELEMENTS = 200_000
"""Number of elements in one file of a full snapshot: some MB, so that a reader of few key groups need not read everything."""


@dataclass(frozen=True)
class FrozenState:
    """Immutable rows of one state with the codecs that encode them."""

    name: str
    info: StateInfo
    codec: Codec
    map_keys: KeyCodec | None
    rows: Sequence[FrozenRows]


@dataclass(frozen=True)
class Ownership:
    """The owner of the state, as every file and handle names it."""

    groups: KeyGroupRange
    max_parallelism: int
    keys: KeyCodec
    key_schema: dict[str, Any]


class Attempt:
    """A snapshot in progress: `SnapshotUpload`, and the data that the backend keeps until the snapshot is confirmed or abandoned.

    Args:
        plan: content of the snapshot.
        parent: confirmed chain to which the snapshot adds.
        written: rows of the log, or of the whole state.
        sliced: rows of the round.
        changes: changes by table, which are restored if the snapshot is abandoned.
        started: round that begins with this snapshot.
        carried: blocks of states that are not registered. Every new base contains these blocks.
        states: description of the states for the handle.
    """

    def __init__(
        self,
        checkpoint_id: int,
        owner: Ownership,
        plan: Plan,
        parent: Chain | None,
        written: list[FrozenState],
        sliced: list[FrozenState],
        changes: list[tuple[Table, Changes]],
        started: Round | None,
        carried: Sequence[StoredBlock],
        states: dict[str, StateInfo],
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.changes = changes
        self.chain: Chain | None = None
        """The chain of this snapshot. None until the upload is done."""
        self.without_round = False
        """Whether a restored state was registered during the upload. The round does not have the entries of this state."""
        self.outdated = False
        """Whether the state registered during the upload now has another encoding. No later snapshot may then add to this snapshot."""
        self._owner = owner
        self._plan = plan
        self._parent = parent or Chain()
        self._written = written
        self._sliced = sliced
        self._started = started
        self._carried = carried
        self._states = states
        self._uploaded = 0
        self._lock = Lock()

    def run(self, writer: StateFileWriter) -> dict[str, Any]:
        chain = self._full(writer) if self._plan.full else self._incremental(writer)
        self.chain = chain
        self._written, self._sliced, self._carried = [], [], ()
        groups = self._owner.groups
        return {
            "backend": BACKEND,
            "format": FORMAT,
            "key_groups": [groups.start, groups.end],
            "max_parallelism": self._owner.max_parallelism,
            "key_schema": self._owner.key_schema,
            "files": [file.to_json() for file in chain.files],
            "states": {name: msgspec.to_builtins(info) for name, info in self._states.items()},
            "bytes_uploaded": self._uploaded,
        }

    def _full(self, writer: StateFileWriter) -> Chain:
        """Write the full state. One file is encoded while others are uploaded."""
        parts = list(_by_key_group(self._written, self._owner)) or [[]]
        uploads: list[Future[StateFile]] = []
        with ThreadPoolExecutor(UPLOAD_THREADS) as pool:
            for index, part in enumerate(parts):
                segment = self._segment(part)
                if index == 0:
                    self._carry(segment)
                if not segment.is_empty:
                    uploads.append(pool.submit(self._write, writer, segment, "base"))
        return Chain(base=tuple(upload.result() for upload in uploads))

    def _incremental(self, writer: StateFileWriter) -> Chain:
        plan, parent = self._plan, self._parent
        chain = replace(parent, logs=parent.logs[: len(parent.logs) - plan.merge])
        log = self._segment(self._written)
        if not log.is_empty:
            file = self._write(writer, log, "log")
            if plan.level is not None:
                file = replace(file, level=plan.level, changes=self.changes)
            chain = replace(chain, logs=(*chain.logs, file), credit=chain.credit + file.ref.size)
        if self._started is not None:
            return replace(chain, round=self._started, next_base=(), position=0, credit=0)
        if plan.slice_entries and chain.round is not None:
            chain = self._write_slice(writer, chain, chain.round)
        return chain

    def _write_slice(self, writer: StateFileWriter, chain: Chain, of: Round) -> Chain:
        position = chain.position + self._plan.slice_entries
        finished = position >= len(of)
        segment = self._segment(self._sliced)
        if finished:
            self._carry(segment)
        next_base = chain.next_base
        spent = 0
        if not segment.is_empty:
            file = self._write(writer, segment, "next")
            next_base, spent = (*next_base, file), file.ref.size
        if not finished:
            return replace(chain, next_base=next_base, position=position, credit=max(0, chain.credit - spent))
        return Chain(
            base=tuple(replace(file, role="base") for file in next_base),
            logs=tuple(file for file in chain.logs if file.checkpoint_id > of.checkpoint_id),
        )

    def _segment(self, states: list[FrozenState]) -> SegmentWriter:
        segment = SegmentWriter(self._owner.max_parallelism, self._owner.groups)
        for state in states:
            for rows in state.rows:
                segment.add(state.name, state.info, rows, state.codec, self._owner.keys, state.map_keys)
        return segment

    def _carry(self, segment: SegmentWriter) -> None:
        for block in self._carried:
            segment.carry(block, self._owner.groups)

    def _write(self, writer: StateFileWriter, segment: SegmentWriter, role: Any) -> StateFile:
        ref = writer.write(segment.finish())
        with self._lock:
            self._uploaded += ref.size
        return StateFile(ref, role, segment.groups, segment.elements, self.checkpoint_id)


def _by_key_group(states: list[FrozenState], owner: Ownership) -> Iterator[list[FrozenState]]:
    """Yield all rows, cut at key groups into parts of about `FILE_ELEMENTS`."""
    ordered = []
    elements = np.zeros(owner.max_parallelism, np.int64)
    for state in states:
        for rows in state.rows:
            if rows.op == DROP:
                continue
            by_group = rows.sorted_by_group(owner.max_parallelism)
            groups = by_group.groups
            assert groups is not None
            elements += np.bincount(groups, by_group.counts, owner.max_parallelism).astype(np.int64)
            ordered.append((state, by_group, groups))
    start = owner.groups.start
    while start <= owner.groups.end:
        stop, size = start, 0
        while stop <= owner.groups.end and (size == 0 or size + elements[stop] <= FILE_ELEMENTS):
            size += int(elements[stop])
            stop += 1
        part = []
        for state, rows, groups in ordered:
            first, last = (int(i) for i in np.searchsorted(groups, (start, stop)))
            if first < last:
                part.append(replace(state, rows=[rows.slice(first, last)]))
        if part:
            yield part
        start = stop
