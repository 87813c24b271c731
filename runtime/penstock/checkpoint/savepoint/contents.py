"""The state of one operator in a checkpoint or savepoint, as rows, without the program that wrote it.

`state.reader` reads keyed state and timers, one subtask at a time. Operator state and the positions of sources are in
the manifest.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.checkpoint.files.codec import handle_files
from penstock.checkpoint.files.manifest import OperatorState, SplitPosition
from penstock.checkpoint.files.state_files import StateFileReader
from penstock.checkpoint.savepoint.snapshots import resolve
from penstock.checkpoint.store.retrying_store import Stores
from penstock.common.errors import PenstockError, StateNotFound
from penstock.state.decoding import decoding
from penstock.state.encoding.any_codec import AnyCodec
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.key_groups import KeyGroupRange, key_group
from penstock.state.operator_state import BROADCAST
from penstock.state.reader import StateRow, TimerRow, handles_for_range, read_state, read_timers, states_of
from penstock.state.timers.timer_table import TIMER_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SPLITS = "splits"
"""Name of the positions of a source."""
TIMERS = {f"timers ({domain})": domain for domain in TIMER_TABLES}
"""Names of timers, and their time domains."""


class OperatorRow(NamedTuple):
    """An item of list or union list state."""

    subtask: int
    value: Any


class BroadcastRow(NamedTuple):
    """An entry of broadcast state."""

    subtask: int
    key: Any
    value: Any


Entry = StateRow | TimerRow | OperatorRow | BroadcastRow | SplitPosition


class OperatorContents:
    """The state of one operator in a snapshot.

    Args:
        path: path of the snapshot, as `resolve` takes it.
        options: options of the object store.

    Raises:
        SnapshotNotFound, SnapshotTorn: see `resolve`.
        StateNotFound: the snapshot has no state of an operator with that uid. The error names the operators that have
            state.
        StateFormatUnsupported: another version wrote it.
    """

    def __init__(self, path: str, uid: str, options: Mapping[str, Any] | None = None) -> None:
        stores = Stores(options)
        snapshot = resolve(path, stores=stores)
        manifest = snapshot.manifest
        known = sorted({*manifest.states, *manifest.sources})
        if uid not in known:
            raise StateNotFound(
                f"{path} holds no state of an operator '{uid}'", remedy=f"it has state of: {', '.join(known) or 'none'}"
            )
        self.uid = uid
        self._state = manifest.states.get(uid, OperatorState())
        self._source = manifest.sources.get(uid)
        self._keyed = states_of(self._state.keyed)
        self._files = StateFileReader(stores, snapshot.base_url)

    def names(self) -> dict[str, str]:
        """Return the kind of each state by its name, such as `keyed value` or `operator split`. Timers are not listed."""
        kinds = {name: f"keyed {info.kind}" for name, info in self._keyed.items()}
        for part in self._state.operator:
            with decoding("the operator state of a manifest"):
                kinds |= {name: f"operator {stored['mode']}" for name, stored in part.items()}
        if self._source is not None:
            kinds[SPLITS] = "source positions"
        return kinds

    def rows(self, name: str) -> Iterator[Entry]:
        """Yield the entries of a state. Records that are stored by position are lists.

        Raises:
            StateNotFound: the operator has no state of that name. The error names its states.
            SnapshotTorn, CorruptStateFile, StateFormatUnsupported: a file cannot be read.
        """
        if name in self._keyed:
            return read_state(self._state.keyed, name, self._files, named=False)
        if any(name in part for part in self._state.operator):
            return self._operator_rows(name)
        if name == SPLITS and self._source is not None:
            return iter(self._source.splits)
        if name in TIMERS and self._state.keyed:
            return (row for row in read_timers(self._state.keyed, self._files) if row.domain == TIMERS[name])
        known = [*self.names(), *(TIMERS if self._state.keyed else ())]
        raise StateNotFound(
            f"operator '{self.uid}' has no state '{name}'", remedy=f"it has: {', '.join(known) or 'none'}"
        )

    def sizes(self) -> dict[str, int]:
        """Return two sizes of the operator's keyed state in bytes: `total`, and `largest` for the largest subtask. A
        read keeps the state of one subtask in memory.
        """
        sizes = [sum(file.size for file in handle_files(handle)) for handle in self._state.keyed]
        return {"total": sum(sizes), "largest": max(sizes, default=0)}

    def group_of(self, name: str, key: Any) -> int | None:
        """Return the key group of a key in keyed state; None means that the state is not keyed, or its keys have another type."""
        if name not in self._keyed:
            return None
        try:
            return key_group(key, self._state.keyed[0]["max_parallelism"])
        except PenstockError:  # the key has a type without a canonical form
            return None

    def rows_of_group(self, name: str, group: int) -> Iterator[Entry]:
        """Yield the entries whose keys are in this key group. Read only the files of the group and decode only its
        rows. It raises the errors of `rows`.
        """
        groups = KeyGroupRange(group, group)
        wanted = handles_for_range(self._state.keyed, groups)
        return read_state(wanted, name, self._files, named=False, within=groups)

    def _operator_rows(self, name: str) -> Iterator[OperatorRow | BroadcastRow]:
        with decoding(f"operator state {name!r}"):
            yield from self._decoded(name)

    def _decoded(self, name: str) -> Iterator[OperatorRow | BroadcastRow]:
        decode = AnyCodec(name, self.uid).decode
        for subtask, part in enumerate(self._state.operator):
            if name not in part:
                continue
            items = list(map(b64decode, part[name]["items"]))
            if part[name]["mode"] == BROADCAST:
                for key, value in zip(items[::2], items[1::2], strict=True):
                    yield BroadcastRow(subtask, UNTYPED_KEYS.decode(key), decode(value))
            else:
                yield from (OperatorRow(subtask, decode(item)) for item in items)
