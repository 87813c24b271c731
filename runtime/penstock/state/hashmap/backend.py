"""The hashmap backend: state as Python objects in dictionaries of the worker process.

An access takes a few dictionary operations. Accumulators that are read and written in batches may be numpy columns instead
(`accumulator_table`). A snapshot freezes the changes (`tables`, `codec.Codec.freeze`), and the upload encodes and writes them (`snapshot`).
`segment_chain` decides which files a checkpoint consists of. Read the docstring of `segment_chain` first.

A restore reads segments (`segment`, `reading`) and decodes each state when the state is registered, because the type is not known before.
The bytes of a state that is never registered are kept and not decoded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.common.errors import StateSchemaIncompatible
from penstock.state.decoding import decoding
from penstock.state.encoding.keys import KeyCodec
from penstock.state.encoding.schema import ANY, incompatibility
from penstock.state.folding_handles import FoldingAggregatingState, FoldingReducingState
from penstock.state.hashmap.accumulator_table import AccumulatorTable
from penstock.state.hashmap.checked_handles import CheckedListState, CheckedMapState, CheckedRawTable, CheckedValueState
from penstock.state.hashmap.collection_tables import ListTable, MapTable
from penstock.state.hashmap.handles import HashMapRawTable, HashMapValueState
from penstock.state.hashmap.peek import peek_table
from penstock.state.hashmap.reading import apply_block, chain_files, handles_for_range, without_collection
from penstock.state.hashmap.row_handles import RowListState, RowMapState, RowValueState, row_conversion
from penstock.state.hashmap.segment_chain import Chain, StateFile, plan
from penstock.state.hashmap.slices import Round
from penstock.state.hashmap.snapshot import BACKEND, Attempt, FrozenState, Ownership
from penstock.state.hashmap.sweeper import TableSweeper
from penstock.state.hashmap.table import Table
from penstock.state.hashmap.tables import CellTable, ValueTable
from penstock.state.owners import OPERATOR
from penstock.state.registry import Registration, key_schema
from penstock.state.restoring import stored_blocks
from penstock.state.snapshot_format.segment import StateInfo
from penstock.state.timers.timer_table import TIMER_INFO, TIMER_TABLES, TimerTable
from penstock.state.ttl.handles import TtlListState, TtlMapState, TtlValueState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.state.backend import SnapshotUpload
    from penstock.state.descriptors import State, StateDescriptor
    from penstock.state.encoding.codec import Codec
    from penstock.state.files import StateFileReader
    from penstock.state.key_context import KeyContext
    from penstock.state.key_groups import KeyGroupRange
    from penstock.state.peek.stored import Peeked
    from penstock.state.snapshot_format.rows import FrozenRows
    from penstock.state.snapshot_format.segment import StoredBlock
    from penstock.state.ttl.expiry import Clock

_TABLES: dict[str, type[CellTable]] = {"list": ListTable, "map": MapTable}


class HashMapStateBackend:
    """`backend.KeyedStateBackend` of Python objects.

    Args:
        key_group_range: key groups that this subtask owns.
        key_type: type of the keys. It is needed if keys are structures (dataclasses, NamedTuples, Enums).
        operator_name: name for error messages.
    """

    def __init__(
        self,
        *,
        key_group_range: KeyGroupRange,
        max_parallelism: int,
        key_context: KeyContext,
        clock: Clock,
        operator_name: str = "",
        key_type: Any = None,
    ) -> None:
        self.key_context = key_context
        self.key_group_range = key_group_range
        self.max_parallelism = max_parallelism
        self.clock = clock
        self.operator_name = operator_name
        self.queryable: dict[str, str] = {}
        keys = key_context.keys = KeyCodec(key_type, "keys", operator_name)
        self.event_time_timers = TimerTable(TIMER_TABLES[0], operator_name, keys)
        self.processing_time_timers = TimerTable(TIMER_TABLES[1], operator_name, keys)
        self._owner = Ownership(key_group_range, max_parallelism, keys, key_schema(key_type, operator=operator_name))
        self._registered: dict[str, tuple[Registration, CellTable]] = {}
        self._sweepers: dict[str, TableSweeper] = {}
        self._pending: dict[str, list[StoredBlock]] = {}
        self._chain: Chain | None = None
        self._attempts: dict[int, Attempt] = {}
        self._tracking = False

    # --- states -------------------------------------------------------------------------------------------------------

    def get_state(self, descriptor: StateDescriptor, owner: str = OPERATOR) -> State:
        registration, table = self._register(descriptor, owner)
        at = self.key_context
        default = getattr(descriptor, "default", None)
        lifetime = registration.lifetime
        convert = row_conversion(descriptor, expires=lifetime is not None)
        if isinstance(table, ListTable):
            elements = CheckedListState(table, at) if convert is None else RowListState(convert, table, at)
            return elements if lifetime is None else TtlListState(elements, lifetime, self._sweeper(registration).step)
        if isinstance(table, MapTable):
            if lifetime is None:
                return (
                    CheckedMapState(table, at, default) if convert is None else RowMapState(convert, table, at, default)
                )
            entries = CheckedMapState(table, at) if convert is None else RowMapState(convert, table, at)
            return TtlMapState(entries, lifetime, self._sweeper(registration).step, default)
        assert isinstance(table, ValueTable)
        if isinstance(table, AccumulatorTable):
            table.keep_objects()
        arguments = (table, at) if lifetime is not None else (table, at, default)
        cell = CheckedValueState(*arguments) if convert is None else RowValueState(convert, *arguments)
        value: HashMapValueState | TtlValueState = cell
        if lifetime is not None:
            value = TtlValueState(cell, lifetime, self._sweeper(registration).step, default)
        return folded(descriptor, value)

    def raw_table(self, descriptor: StateDescriptor) -> HashMapRawTable:
        registration, table = self._register(descriptor, OPERATOR, AccumulatorTable)
        if not isinstance(table, ValueTable) or registration.lifetime is not None:
            raise TypeError(f"a raw table is for value state without time-to-live, not for {descriptor!r}")
        return CheckedRawTable(table)

    def _register(
        self, descriptor: StateDescriptor, owner: str, values: type[ValueTable] = ValueTable
    ) -> tuple[Registration, CellTable]:
        """Return the state and its table. `values`: class of the table if the table is new and holds values."""
        new = Registration.of(descriptor, self.operator_name, self.clock, owner)
        if descriptor.is_queryable():
            self.queryable[descriptor.get_queryable_state_name()] = new.name
        known = self._registered.get(new.name)
        if known is not None:
            known[0].check_same(new)
            return known
        table = {**_TABLES, "value": values}[new.info.layout](new.name, new.codec, new.map_keys)
        table.keys = self._owner.keys
        if new.name in self._pending:
            self._decode_pending(new, table)
        table.track(on=self._tracking)
        self._registered[new.name] = (new, table)
        return new, table

    def _sweeper(self, registration: Registration) -> TableSweeper:
        sweeper = self._sweepers.get(registration.name)
        if sweeper is None:
            assert registration.lifetime is not None
            sweeper = TableSweeper(self._registered[registration.name][1], registration.lifetime)
            self._sweepers[registration.name] = sweeper
        return sweeper

    def _decode_pending(self, registration: Registration, table: Table) -> None:
        """Decode a restored state, whose type is now known."""
        blocks = self._pending[registration.name]
        codecs: list[tuple[StateInfo, Codec]] = []
        with without_collection():
            for block in blocks:
                codec = next((codec for info, codec in codecs if info is block.info), None)
                if codec is None:
                    codec = registration.reader(block.info)
                    codecs.append((block.info, codec))
                self._apply(table, block, codec)
        del self._pending[registration.name]
        as_stored = all(registration.is_stored_encoding(info) for info, _ in codecs)
        if self._chain is not None:
            # The current round does not have the new entries. Old and new encodings must not be mixed.
            self._chain = _without_round(self._chain) if as_stored else None
        for attempt in self._attempts.values():
            attempt.without_round = True
            attempt.outdated = attempt.outdated or not as_stored

    def _apply(self, table: Table, block: StoredBlock, codec: Codec | None = None) -> None:
        apply_block(table, block, self.key_group_range, self.max_parallelism, self._owner.keys, codec)

    def namespaces(self, state_name: str) -> Iterator[Any]:
        known = self._registered.get(state_name)
        return iter(()) if known is None else known[1].namespaces()

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        known = self._registered.get(state_name)
        return iter(()) if known is None else iter(list(known[1].spaces.get(namespace, ())))

    def peek(self, state_name: str, key: Any) -> Peeked | None:
        known = self._registered.get(state_name)
        if known is None:
            return None
        return peek_table(known[1], known[0], self._owner.keys, self._owner.key_schema, key)

    def entry_count(self) -> int:
        return sum(len(table) for _, table in self._registered.values())

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> SnapshotUpload:
        if not self._tracking:
            self._track(on=True)
        tables = self._tables()
        for attempt in self._attempts.values():  # not confirmed yet: this snapshot must also have their changes
            _restore_changes(attempt.changes)
        chain = self._chain
        decided = plan(chain, sum(t.change_count() for t in tables), sum(map(len, tables)))
        if chain is not None and decided.merge:
            for log in chain.logs[-decided.merge :]:
                _restore_changes(log.changes)
        if decided.full:
            self._remove_expired()
        changes = [(table, table.take_changes()) for table in tables]
        if decided.full:
            written = [self._frozen(table, table.freeze_all()) for table in tables]
        else:
            written = [self._frozen(table, table.freeze(changed)) for table, changed in changes]
        sliced: list[FrozenState] = []
        if chain is not None and chain.round is not None and decided.slice_entries:
            for table, keys, namespaces in chain.round.slice(chain.position, decided.slice_entries):
                sliced.append(self._frozen(table, table.freeze_keys(keys, namespaces)))
        started = Round(checkpoint_id, tables) if decided.start_round else None
        carried = [block for blocks in self._pending.values() for block in blocks]
        attempt = Attempt(
            checkpoint_id, self._owner, decided, chain, written, sliced, changes, started, carried, self._state_infos()
        )
        self._attempts[checkpoint_id] = attempt
        return attempt

    def _tables(self) -> list[Table]:
        return [
            *(table for _, table in self._registered.values()),
            self.event_time_timers,
            self.processing_time_timers,
        ]

    def _track(self, *, on: bool) -> None:
        self._tracking = on
        for table in self._tables():
            table.track(on=on)

    def _frozen(self, table: Table, rows: Sequence[FrozenRows]) -> FrozenState:
        info = TIMER_INFO if isinstance(table, TimerTable) else self._registered[table.name][0].info
        return FrozenState(table.name, info, table.codec, table.map_keys, rows)

    def _remove_expired(self) -> None:
        for registration, _ in self._registered.values():
            lifetime = registration.lifetime
            if lifetime is not None and lifetime.config.get_cleanup_strategies().in_full_snapshot():
                self._sweeper(registration).sweep_all()

    def _state_infos(self) -> dict[str, StateInfo]:
        unregistered = {name: blocks[-1].info for name, blocks in self._pending.items()}
        return unregistered | {name: registration.info for name, (registration, _) in self._registered.items()}

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        attempt = self._attempts.get(checkpoint_id)
        if attempt is None or attempt.chain is None:
            return
        chain = _without_round(attempt.chain) if attempt.without_round else attempt.chain
        self._chain = None if attempt.outdated else chain
        self._attempts = {i: other for i, other in self._attempts.items() if i > checkpoint_id}

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        attempt = self._attempts.pop(checkpoint_id, None)
        if attempt is None:
            return
        _restore_changes(attempt.changes)
        if self._chain is None and not self._attempts:
            self._track(on=False)  # no base exists: the next snapshot is a full snapshot

    # --- restore ------------------------------------------------------------------------------------------------------

    def restore(self, handles: Iterable[dict[str, Any]], reader: StateFileReader, *, owned: bool = False) -> None:
        """Restore as described in `backend.KeyedStateBackend.restore`.

        Args:
            owned: whether the files belong to this job's checkpoints, and not to a savepoint. If so, the next checkpoint may add files
                instead of writing all state.
        """
        with decoding("the keyed state", operator=self.operator_name):
            self._restore(handles, reader, owned=owned)

    def _restore(self, handles: Iterable[dict[str, Any]], reader: StateFileReader, *, owned: bool) -> None:
        mine = self.key_group_range
        base: list[StateFile] = []
        logs: list[StateFile] = []
        for handle in handles_for_range(handles, mine):
            self._check_keys(handle)
            for block in stored_blocks(handle, mine, reader):
                self._restore_block(block)
            if handle["backend"] == BACKEND:
                files = chain_files(handle, mine)
                base.extend(file for file in files if file.role == "base")
                logs.extend(file for file in files if file.role == "log")
            else:
                owned = False
        for timers in (self.event_time_timers, self.processing_time_timers):
            timers.restored()
        if owned and (base or logs):
            self._chain = Chain(tuple(base), tuple(logs))
            self._track(on=True)

    def _restore_block(self, block: StoredBlock) -> None:
        if block.info.layout != "timer":
            self._pending.setdefault(block.name, []).append(block)
            return
        timers = self.event_time_timers if block.name == self.event_time_timers.name else self.processing_time_timers
        self._apply(timers, block)

    def _check_keys(self, handle: dict[str, Any]) -> None:
        check_key_schema(handle, self._owner.key_schema, self.operator_name)

    def close(self) -> None:
        for table in self._tables():
            table.clear()
        self._registered.clear()
        self._pending.clear()
        self._attempts.clear()
        self._chain = None


def folded(descriptor: StateDescriptor, value: Any) -> State:
    """Return the handle of a descriptor whose state is one value per key. A reducing or aggregating handle uses `value`, the handle of the
    value.
    """
    if descriptor.kind == "reducing":
        return FoldingReducingState(value, descriptor.reduce)  # type: ignore[attr-defined]
    if descriptor.kind == "aggregating":
        return FoldingAggregatingState(value, descriptor.get_agg_function())  # type: ignore[attr-defined]
    state: State = value
    return state


def check_key_schema(handle: dict[str, Any], ours: dict[str, Any], operator: str) -> None:
    """Check the type of the keys.

    Raises:
        StateSchemaIncompatible: the stored keys have another type, so their state could never be found again.
    """
    theirs = handle.get("key_schema", ANY)
    reason = "" if ANY in (ours, theirs) else incompatibility(theirs, ours, "the key")
    if reason:
        raise StateSchemaIncompatible(
            f"the keys changed: {reason}\n  in the snapshot: {theirs}\n  in the program:  {ours}",
            remedy="keep the key of a restored operator, or give the operator a new uid",
            operator=operator,
        )


def _restore_changes(changes: Iterable[tuple[Table, Any]]) -> None:
    for table, changed in changes:
        table.restore_changes(changed)


def _without_round(chain: Chain) -> Chain:
    return replace(chain, round=None, next_base=(), position=0, credit=0)
