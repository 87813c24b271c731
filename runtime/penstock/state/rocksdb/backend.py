"""The RocksDB backend: state larger than memory, on the worker's local disk.

Each state has a column family, with rows as in `rows`. Timers are in memory, because firing them must not need a seek. Each snapshot writes
the timers to a separate column family.

A snapshot hard-links the immutable files to a directory and makes RocksDB flush its memory in the background (`frozen`). The upload sends
the files that the last confirmed checkpoint does not have. A restore fetches the files with rows of its key groups and opens them
unchanged. Files of several former subtasks become one database (`restore`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.state.decoding import decoding
from penstock.state.encoding.codec import EXPIRY
from penstock.state.encoding.keys import KeyCodec
from penstock.state.files import FileRef
from penstock.state.hashmap.backend import check_key_schema, folded
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import KeyGroupRange
from penstock.state.local_disk import writing
from penstock.state.owners import OPERATOR
from penstock.state.registry import Registration, key_schema
from penstock.state.rocksdb.database import Database, scan, scan_prefix
from penstock.state.rocksdb.files.frozen import FrozenDatabase
from penstock.state.rocksdb.handles import (
    RocksDBListState,
    RocksDBMapState,
    RocksDBRawTable,
    RocksDBValueState,
    refuse_unreadable,
)
from penstock.state.rocksdb.metrics import TICKERS, metrics_of, report_database, report_state
from penstock.state.rocksdb.options import read_options
from penstock.state.rocksdb.origins import Origins, to_json
from penstock.state.rocksdb.peek import peek_family
from penstock.state.rocksdb.restore import Restore
from penstock.state.rocksdb.rows import (
    Addresses,
    address_size,
    after,
    decode_namespace,
    encoded_space_prefix,
    family_name,
    group_prefix,
    space_prefix,
    split_row,
)
from penstock.state.rocksdb.snapshot import RocksDBUpload, SnapshotFacts
from penstock.state.rocksdb.timers import FAMILY as TIMERS
from penstock.state.rocksdb.timers import read_timers, write_timers
from penstock.state.timers.timer_table import TIMER_TABLES, TimerTable
from penstock.state.ttl.handles import TtlListState, TtlMapState, TtlValueState

if TYPE_CHECKING:
    from rocksdict import Rdict

    from penstock.metrics import MetricGroup
    from penstock.state.backend import SnapshotUpload
    from penstock.state.descriptors import State, StateDescriptor
    from penstock.state.encoding.codec import Codec
    from penstock.state.files import StateFileReader
    from penstock.state.peek.stored import Peeked
    from penstock.state.ttl.expiry import Clock, Lifetime

EXACT_COUNT = 50_000
"""Number of rows of a state up to which `entry_count` counts entries. Above this number, it uses RocksDB's estimate of the rows."""


class RocksDBStateBackend:
    """`backend.KeyedStateBackend` on RocksDB.

    Args:
        key_group_range: key groups that this subtask owns.
        work_dir: separate directory of this backend, removed by `close`. Empty means a temporary directory.
        options: `state.backend.rocksdb.*`, see `options.DEFAULTS`. Other keys are ignored.
        key_type: type of the keys. It is needed if the keys are structures.
        metrics: group of the metrics that the options turn on (`metrics`). None means no metrics.
    """

    def __init__(
        self,
        *,
        key_group_range: KeyGroupRange,
        max_parallelism: int,
        key_context: KeyContext,
        clock: Clock,
        work_dir: str = "",
        options: Mapping[str, Any] | None = None,
        operator_name: str = "",
        key_type: Any = None,
        metrics: MetricGroup | None = None,
    ) -> None:
        self.key_context = key_context
        self.key_group_range = key_group_range
        self.max_parallelism = max_parallelism
        self.clock = clock
        self.operator_name = operator_name
        self.queryable: dict[str, str] = {}
        self._keys = key_context.keys = KeyCodec(key_type, "keys", operator_name)
        self.event_time_timers = TimerTable(TIMER_TABLES[0], operator_name, self._keys)
        self.processing_time_timers = TimerTable(TIMER_TABLES[1], operator_name, self._keys)
        self._key_schema = key_schema(key_type, operator=operator_name)
        self._addresses = Addresses(key_context, self._keys, max_parallelism)
        self._settings = read_options(options or {})
        self._metrics = metrics
        self._reported = metrics_of(options or {})
        if metrics is not None:
            report_database(metrics, self._reported, self._statistics)
        self._work_dir = Path(work_dir or tempfile.mkdtemp(prefix="penstock-rocksdb-"))
        shutil.rmtree(self._work_dir, ignore_errors=True)
        with writing(self._work_dir):
            self._work_dir.mkdir(parents=True)
        self._opened: Database | None = None
        self._registered: dict[str, Registration] = {}
        self._stored: Origins = {}
        """Stored descriptions of restored states that no function has used yet."""
        self._sweepers: dict[str, RowSweeper] = {}
        self._number = 0
        self._confirmed: dict[str, FileRef] = {}
        self._uploads: dict[int, RocksDBUpload] = {}
        self._timers_written = False

    @property
    def _database(self) -> Database:
        """The database. It is opened at the first use of this property, so that a restore can first put files in place."""
        if self._opened is None:
            database = Database(
                str(self._work_dir / "db"), self._settings, counts=bool(self._reported & TICKERS.keys())
            )
            try:
                database.family(TIMERS)  # takes tens of milliseconds, which must not delay the first barrier
            except BaseException:
                database.close()  # a restore may delete these files and open a new database
                raise
            self._opened = database
        return self._opened

    # --- states -------------------------------------------------------------------------------------------------------

    def get_state(self, descriptor: StateDescriptor, owner: str = OPERATOR) -> State:
        registration = self._register(descriptor, owner)
        family = self._database.family(family_name(registration.name))
        default = getattr(descriptor, "default", None)
        codec, lifetime, addresses = registration.codec, registration.lifetime, self._addresses
        layout = registration.info.layout
        if layout == "list":
            elements = RocksDBListState(family, addresses, codec, self)
            return elements if lifetime is None else TtlListState(elements, lifetime, self._sweep(registration))
        if layout == "map":
            assert registration.map_keys is not None
            if lifetime is None:
                return RocksDBMapState(family, addresses, codec, registration.map_keys, default)
            cells = RocksDBMapState(family, addresses, codec, registration.map_keys)
            return TtlMapState(cells, lifetime, self._sweep(registration), default)
        if lifetime is None:
            return folded(descriptor, RocksDBValueState(family, addresses, codec, default))
        value = RocksDBValueState(family, addresses, codec)
        return folded(descriptor, TtlValueState(value, lifetime, self._sweep(registration), default))

    def raw_table(self, descriptor: StateDescriptor) -> RocksDBRawTable:
        registration = self._register(descriptor, OPERATOR)
        if registration.info.layout != "value" or registration.lifetime is not None:
            raise TypeError(f"a raw table is for value state without time-to-live, not for {descriptor!r}")
        family = self._database.family(family_name(registration.name))
        return RocksDBRawTable(registration.name, family, self._addresses, registration.codec, self)

    def _register(self, descriptor: StateDescriptor, owner: str) -> Registration:
        new = Registration.of(descriptor, self.operator_name, self.clock, owner)
        if descriptor.is_queryable():
            self.queryable[descriptor.get_queryable_state_name()] = new.name
        known = self._registered.get(new.name)
        if known is not None:
            known.check_same(new)
            return known
        stored = self._stored.get(new.name)
        if stored is not None:
            readers = [(groups, new.reader(info), new.is_stored_encoding(info)) for groups, info in stored]
            with decoding(f"state {new.name!r}", operator=self.operator_name):
                for groups, reader, as_stored in readers:
                    if not as_stored:
                        self._rewrite(new, groups, reader)
            del self._stored[new.name]
        self._registered[new.name] = new
        if self._metrics is not None and self._reported:
            report_state(self._metrics, new.name, self._reported, partial(self._family_of, new.name))
        return new

    def _statistics(self) -> str:
        return "" if self._opened is None else self._opened.statistics()

    def _family_of(self, state: str) -> Rdict | None:
        return None if self._opened is None else self._opened.families.get(family_name(state))

    def _rewrite(self, registration: Registration, groups: KeyGroupRange, reader: Codec) -> None:
        """Encode the values of these key groups again, so that every row has the schema that the next snapshot names."""
        name = family_name(registration.name)
        rows = scan(self._database.family(name), group_prefix(groups.start), group_prefix(groups.end + 1))
        encode, decode = registration.codec.encode, reader.decode
        self._database.put_all(name, ((row, encode(decode(data))) for row, data in rows))

    def _sweep(self, registration: Registration) -> Callable[[], None]:
        sweeper = self._sweepers.get(registration.name)
        if sweeper is None:
            assert registration.lifetime is not None
            family = self._database.family(family_name(registration.name))
            sweeper = self._sweepers[registration.name] = RowSweeper(family, registration.codec, registration.lifetime)
        return sweeper.step

    def next_number(self) -> int:
        """Return the number of the next list element. Numbers ascend across all lists, and continue to ascend after a restore."""
        self._number += 1
        return self._number

    # --- iteration ----------------------------------------------------------------------------------------------------

    def _groups(self) -> range:
        return range(self.key_group_range.start, self.key_group_range.end + 1)

    def namespaces(self, state_name: str) -> Iterator[Any]:
        if state_name not in self._registered:
            return
        family = self._database.family(family_name(state_name))
        seen: set[bytes] = set()
        with self._decoding_rows(state_name):
            for group in self._groups():
                start, stop = group_prefix(group), group_prefix(group + 1)
                while (found := next(scan(family, start, stop), None)) is not None:
                    namespace = split_row(found[0])[1]
                    if namespace not in seen:
                        seen.add(namespace)
                        yield decode_namespace(namespace)
                    start = after(encoded_space_prefix(group, namespace))

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        if state_name not in self._registered:
            return
        last = b""
        for row, key, _ in self.namespace_rows(state_name, namespace):
            address = row[: address_size(row)]
            if address != last:
                last = address
                yield key

    def namespace_rows(self, state_name: str, namespace: Any) -> Iterator[tuple[bytes, Any, bytes]]:
        """Yield (row key, key, encoded value) of all rows in a namespace."""
        family = self._database.family(family_name(state_name))
        decode = self._keys.decode
        with self._decoding_rows(state_name):
            for group in self._groups():
                for row, data in scan_prefix(family, space_prefix(group, namespace)):
                    yield row, decode(split_row(row)[2]), data

    def _decoding_rows(self, state_name: str) -> AbstractContextManager[None]:
        return decoding(f"a key or namespace of state {state_name!r}", operator=self.operator_name)

    def peek(self, state_name: str, key: Any) -> Peeked | None:
        registration, family = self._registered.get(state_name), self._family_of(state_name)
        if registration is None or family is None:
            return None
        with self._decoding_rows(state_name):
            return peek_family(family, registration, self._keys, self._key_schema, self._addresses, key)

    def entry_count(self) -> int:
        """Return the number of (state, key, namespace) entries. For a state with more than `EXACT_COUNT` rows, use RocksDB's estimate of
        the rows.
        """
        return sum(map(self._count, self._registered))

    def _count(self, state_name: str) -> int:
        family = self._database.family(family_name(state_name))
        estimate = int(family.property_int_value("rocksdb.estimate-num-keys") or 0)
        if estimate > EXACT_COUNT:
            return estimate
        with self._decoding_rows(state_name):
            return len({row[: address_size(row)] for row, _ in scan(family, b"", group_prefix(1 << 16))})

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> SnapshotUpload:
        database = self._database
        for domain, timers in enumerate((self.event_time_timers, self.processing_time_timers)):
            write_timers(database, domain, timers, self._addresses, everything=not self._timers_written)
        self._timers_written = True
        for upload in self._uploads.values():
            upload.wait()
        directory = self._work_dir / f"chk-{checkpoint_id}"
        shutil.rmtree(directory, ignore_errors=True)
        with writing(directory):
            frozen = FrozenDatabase(database, directory)
        stored = {name: parts[0].info for name, parts in self._stored.items() if parts}
        states = stored | {name: registration.info for name, registration in self._registered.items()}
        facts = SnapshotFacts(
            self.key_group_range,
            self.max_parallelism,
            self._settings["checkpoint.transfer.thread.num"],
            self._key_schema,
            states,
            self._number,
            to_json(self._stored),
        )
        upload = RocksDBUpload(frozen, directory, facts, dict(self._confirmed))
        self._uploads[checkpoint_id] = upload
        return upload

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        upload = self._uploads.get(checkpoint_id)
        if upload is None or upload.files is None:
            return
        self._confirmed = upload.files
        self._uploads = {i: other for i, other in self._uploads.items() if i > checkpoint_id}

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        upload = self._uploads.pop(checkpoint_id, None)
        if upload is not None:
            upload.discard()

    # --- restore ------------------------------------------------------------------------------------------------------

    def restore(self, handles: Iterable[dict[str, Any]], reader: StateFileReader, *, owned: bool = False) -> None:
        """Restore as described in `backend.KeyedStateBackend.restore`.

        Args:
            owned: whether the files belong to this job's checkpoints, and not to a savepoint. If so, the next checkpoint may refer to them.
        """
        with decoding("the keyed state", operator=self.operator_name):
            self._restore(handles, reader, owned=owned)

    def _restore(self, handles: Iterable[dict[str, Any]], reader: StateFileReader, *, owned: bool) -> None:
        restore = Restore(self._work_dir, self.key_group_range, self.max_parallelism, self._settings, reader)
        handles = restore.relevant(handles)
        for handle in handles:
            check_key_schema(handle, self._key_schema, self.operator_name)
        files = restore.run(handles, self._work_dir / "db", lambda: self._database)
        self._confirmed = files if owned else {}
        self._number = restore.last_number
        self._stored = restore.origins
        timers = self.event_time_timers, self.processing_time_timers
        read_timers(self._database, self._keys, timers, self.key_group_range)
        for block in restore.timer_blocks:
            restore.apply(timers[0] if block.name == timers[0].name else timers[1], block, self._keys)
        for table in timers:
            table.restored()

    def close(self) -> None:
        for upload in self._uploads.values():
            upload.discard()
        self._uploads.clear()
        self._sweepers.clear()
        if self._opened is not None:
            self._opened.destroy()
            self._opened = None
        shutil.rmtree(self._work_dir, ignore_errors=True)


class RowSweeper:
    """A cursor that repeatedly passes through a state's rows. Each access to the state checks the next few rows, and
    removes the expired rows."""

    def __init__(self, family: Any, codec: Codec, lifetime: Lifetime) -> None:
        self._family = family
        self._codec = codec
        self._lifetime = lifetime
        self._rows: Iterator[tuple[bytes, bytes]] = iter(())

    def step(self) -> None:
        try:
            self._step()
        except Exception as error:
            refuse_unreadable(self._codec, error)

    def _step(self) -> None:
        now = self._lifetime.now()
        for _ in range(self._lifetime.sweep_size):
            found = next(self._rows, None)
            if found is None:
                self._rows = scan(self._family, b"", group_prefix(1 << 16))
                return
            row, data = found
            if EXPIRY.unpack_from(data)[0] <= now and self._family.get(row) == data:
                with writing(self._family.path()):
                    del self._family[row]
