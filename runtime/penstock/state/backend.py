"""The state seam: what operators and user functions see of a state backend, and what a backend gives a checkpoint.

Keyed state is addressed by (state name, key, namespace). The key and the namespace are not arguments: they are set in
the `KeyContext`, which the operator moves from record to record (S1), so that a handle's `value()` is one dictionary
look-up. The namespace is None for ordinary keyed state and the window (a tuple of ints) for window state.

A backend serves one operator of one subtask and owns a range of key groups. Its snapshot has two parts (S29): the
synchronous one, `snapshot()`, freezes what changed and returns a `SnapshotUpload`; the asynchronous one,
`SnapshotUpload.run(writer)`, writes the files from another thread and returns the handle for the manifest. The handle is
JSON-able and tells which key groups its files hold, so that a restore at another parallelism reads what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.state.descriptors import ListStateDescriptor, MapStateDescriptor, State, StateDescriptor
    from penstock.state.hashmap.accumulator_columns import AccumulatorColumns
    from penstock.state.operator_state import OperatorListState
    from penstock.state.peek import Peeked
    from penstock.state.snapshot_format.column_rows import AccumulatorShape


class KeyGroupRange(NamedTuple):
    """Key groups `start` to `end`, both included; empty if end < start."""

    start: int
    end: int

    def __contains__(self, group: object) -> bool:
        return isinstance(group, int) and self.start <= group <= self.end

    def overlaps(self, other: KeyGroupRange) -> bool:
        return self.start <= other.end and other.start <= self.end


class KeyContext:
    """The current key and namespace of one keyed operator. Mutable on purpose: it is set once per record."""

    __slots__ = ("key", "namespace")

    def __init__(self) -> None:
        self.key: Any = None
        self.namespace: Any = None


@dataclass(frozen=True)
class FileRef:
    """A file of a checkpoint. `path` is relative to the job's checkpoint root, or to the savepoint's folder.

    >>> FileRef.of_json(FileRef("shared/a", 3, "crc32:0", offset=7).to_json())
    FileRef(path='shared/a', size=3, checksum='crc32:0', offset=7)
    """

    path: str
    size: int
    checksum: str
    """`crc32:` and 8 hex digits of the content; verified at restore."""
    offset: int | None = None
    """Where it begins in an object that holds several files; None: it is the whole object."""

    def to_json(self) -> dict[str, Any]:
        """As handles name it."""
        named = {"path": self.path, "size": self.size, "checksum": self.checksum}
        return named if self.offset is None else {**named, "offset": self.offset}

    @staticmethod
    def of_json(entry: Mapping[str, Any]) -> FileRef:
        return FileRef(entry["path"], int(entry["size"]), entry["checksum"], entry.get("offset"))


class StateFileWriter(Protocol):
    """Writes immutable state files; given by `penstock.checkpoint`. Thread-safe.

    What they name is durable when the snapshot is acknowledged, not before: small files are put together.
    """

    def write(self, content: bytes) -> FileRef: ...

    def upload(self, local_path: str) -> FileRef:
        """Upload a local file (an SST)."""
        ...


class StateFileReader(Protocol):
    """Reads state files of one checkpoint or savepoint; verifies size and checksum.

    Raises:
        CorruptStateFile: names the file, the expected and the found checksum.
    """

    def read(self, ref: FileRef) -> bytes: ...

    def download(self, ref: FileRef, local_path: str) -> None: ...


class SnapshotUpload(Protocol):
    """The asynchronous part of a snapshot. `run` is called once, from an upload thread."""

    def run(self, writer: StateFileWriter) -> dict[str, Any]:
        """Returns the JSON-able keyed state handle; see `KeyedStateBackend.restore` for who reads it.

        It must hold: `backend` (str), `format` (int), `key_groups` [start, end], `files` (list of
        {"path","size","checksum",…}: every file the handle needs, also those uploaded earlier),
        `states` ({name: {"kind","schema"…}}), `bytes_uploaded` (int, of this snapshot only).
        """
        ...


class KeyedStateBackend(Protocol):
    """Keyed state of one operator in one subtask."""

    key_context: KeyContext
    key_group_range: KeyGroupRange
    max_parallelism: int
    queryable: dict[str, str]
    """Names of states by the names that they are looked up by from outside."""

    def get_state(self, descriptor: StateDescriptor) -> State:
        """The handle of a state in the current key and namespace; creates the state at the first call.

        Raises:
            StateNameConflict: the name was registered with another kind or type in this operator.
            StateSchemaIncompatible: the restored state has a schema that cannot become the new one; shows both.
        """
        ...

    def namespaces(self, state_name: str) -> Iterator[Any]:
        """Namespaces that hold anything for any key (the open windows)."""
        ...

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        """Keys with a value in that state and namespace."""
        ...

    def raw_table(self, descriptor: StateDescriptor) -> RawTable:
        """Direct access for the engine's own operators' tight loops (value state only)."""
        ...

    def snapshot(self, checkpoint_id: int) -> SnapshotUpload: ...

    def restore(self, handles: Iterable[dict[str, Any]], reader: StateFileReader, *, owned: bool = False) -> None:
        """Load what lies in `key_group_range` from handles of the previous run, which may overlap it in part.

        Called before any `get_state`. Handles of another backend kind are accepted: a savepoint moves between backends.

        Args:
            owned: the files belong to this job's checkpoints, so that the next checkpoint may refer to them; False for a
                savepoint's.

        Raises:
            CorruptStateFile, StateFormatUnsupported.
        """
        ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is the base of the next incremental one (S43: only a confirmed one may be)."""
        ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """What the abandoned snapshot held must be part of the next one."""
        ...

    def peek(self, state_name: str, key: Any) -> Peeked | None:
        """What a builtin key has in the namespace None now; nothing changes by it. None: nobody has asked for the state yet.

        Raises:
            NotPeekable: it is too much, or a state of windows.
        """
        ...

    def entry_count(self) -> int:
        """Number of (state, key, namespace) entries, for the metrics and for tests of state clean-up."""
        ...

    def close(self) -> None: ...


def apply_to_all_keys(
    backend: KeyedStateBackend, descriptor: StateDescriptor, fn: Callable[[Any, State], None]
) -> None:
    """`applyToKeyedState` of the broadcast pattern (S18): calls fn(key, state) for every key that has a value."""
    state = backend.get_state(descriptor)
    at = backend.key_context
    before = at.key, at.namespace
    try:
        for key in backend.keys(descriptor.name):
            at.key, at.namespace = key, None
            fn(key, state)
    finally:
        at.key, at.namespace = before


class RawTable(Protocol):
    """Values of one value state by key in the namespace given; every write is noted for the next snapshot."""

    def get(self, key: Any, namespace: Any = None) -> Any: ...

    def put(self, key: Any, value: Any, namespace: Any = None) -> None: ...

    def remove(self, key: Any, namespace: Any = None) -> None: ...

    def mapping(self, namespace: Any = None) -> dict[Any, Any] | None:
        """hashmap: the live dictionary key -> value of the namespace; call `touch` for the keys you changed.

        None: the backend keeps its values elsewhere; use get and put.
        """
        ...

    def columns(self, shape: AccumulatorShape, count: int) -> AccumulatorColumns | None:
        """hashmap: the accumulators of the namespace None as columns, until any other method is called.

        None: they are objects. A backend that could change that does when it was asked often enough.

        Args:
            count: how many keys they are wanted for.
        """
        ...

    def touch(self, keys: Iterable[Any], namespace: Any = None) -> None:
        """These keys changed (or went) in the dictionary that `mapping` gave."""
        ...

    def pop_namespace(self, namespace: Any) -> Iterator[tuple[Any, Any]]:
        """Remove a whole namespace and iterate what it held (a window that has fired)."""
        ...


class OperatorStateBackend(Protocol):
    """Operator state of one subtask (S10-S13): list state split evenly, union list state, broadcast state."""

    def get_list_state(self, name: str | ListStateDescriptor, type_info: Any = None) -> OperatorListState:
        """The live list of this subtask's items; change it in place. On restore it holds this subtask's share."""
        ...

    def get_union_list_state(self, name: str | ListStateDescriptor, type_info: Any = None) -> OperatorListState:
        """As list state, but on restore every subtask gets all items of all subtasks."""
        ...

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> Any:
        """A `BroadcastState` (map-shaped), the same on all subtasks; copied on restore."""
        ...

    def check(self, name: str, item: Any) -> None:
        """Whether a snapshot could hold the item in this list state. Raises StateTypeError."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """JSON-able: {name: {"mode": "split"|"union"|"broadcast", "items": [base64 msgpack …]}}."""
        ...

    def restore(self, snapshots: list[dict[str, Any]], subtask: int, parallelism: int) -> None:
        """From the snapshots of all previous subtasks; splits, unites or copies by mode."""
        ...
