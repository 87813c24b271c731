"""The state interface: a state backend as operators and user functions see it, and its part in a checkpoint.

Keyed state is addressed by (state name, key, namespace). The key and the namespace are not arguments. The operator sets
them in the `KeyContext` for every record, so that a handle's `value()` is one dictionary look-up. The namespace is None
for ordinary keyed state and the window (a tuple of ints) for window state.

A backend serves one operator of one subtask and owns a range of key groups. Its snapshot has two parts:

- The synchronous part, `snapshot()`, freezes the changes and returns a `SnapshotUpload`.
- The asynchronous part, `SnapshotUpload.run(writer)`, writes the files from another thread and returns the handle for
  the manifest.

The handle can be encoded as JSON and names the key groups of its files. A restore at another parallelism therefore reads only the
files that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.state.owners import FUNCTION, OPERATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.state.descriptors import ListStateDescriptor, MapStateDescriptor, State, StateDescriptor
    from penstock.state.files import StateFileReader, StateFileWriter
    from penstock.state.hashmap.accumulator_columns import AccumulatorColumns
    from penstock.state.key_context import KeyContext
    from penstock.state.key_groups import KeyGroupRange
    from penstock.state.operator_state import OperatorListState
    from penstock.state.peek.stored import Peeked
    from penstock.state.snapshot_format.column_rows import AccumulatorShape


class SnapshotUpload(Protocol):
    """The asynchronous part of a snapshot. `run` is called once, from an upload thread."""

    def run(self, writer: StateFileWriter) -> dict[str, Any]:
        """Return the keyed state handle, as JSON values. `KeyedStateBackend.restore` reads it.

        The handle has these fields:

        - `backend` (str) and `format` (int)
        - `key_groups`: [start, end]
        - `files`: list of {"path","size","checksum",…} with every file that the handle needs, including those uploaded
          earlier
        - `states`: {name: {"kind","schema"…}}
        - `bytes_uploaded`: int, of this snapshot only
        """
        ...


class KeyedStateBackend(Protocol):
    """Keyed state of one operator in one subtask."""

    key_context: KeyContext
    key_group_range: KeyGroupRange
    max_parallelism: int
    queryable: dict[str, str]
    """Internal names of queryable states, by their external names."""

    def get_state(self, descriptor: StateDescriptor, owner: str = OPERATOR) -> State:
        """Return the handle of a state in the current key and namespace. The first call creates the state.

        Args:
            owner: `OPERATOR`, or `FUNCTION` for a state of user code.

        Raises:
            StateNameConflict: the name was registered with another kind, type or owner in this operator.
            StateSchemaIncompatible: the new schema cannot read values of the restored schema. The error shows both schemas.
        """
        ...

    def namespaces(self, state_name: str) -> Iterator[Any]:
        """Return the namespaces that have a value for any key (the open windows)."""
        ...

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        """Return the keys with a value in that state and namespace."""
        ...

    def raw_table(self, descriptor: StateDescriptor) -> RawTable:
        """Return direct access for tight loops of the engine's operators (value state only)."""
        ...

    def snapshot(self, checkpoint_id: int) -> SnapshotUpload: ...

    def restore(self, handles: Iterable[dict[str, Any]], reader: StateFileReader, *, owned: bool = False) -> None:
        """Load the content of `key_group_range` from handles of the previous run. A handle may also contain other key groups.

        The task calls this method before any `get_state`. Handles of another backend kind are accepted, so that a
        savepoint can move between backends.

        Args:
            owned: whether the files belong to this job's checkpoints. The next checkpoint may then refer to them. False means a savepoint's
                files.

        Raises:
            CorruptStateFile, StateFormatUnsupported.
        """
        ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Make the checkpoint the base of the next incremental checkpoint. Only a confirmed checkpoint may be the base."""
        ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Add the content of the abandoned snapshot to the next snapshot."""
        ...

    def peek(self, state_name: str, key: Any) -> Peeked | None:
        """Return the current value of a builtin key in the namespace None. Change nothing. Return None if the state is not registered yet.

        Raises:
            NotPeekable: the value is too large, or the state belongs to windows.
        """
        ...

    def entry_count(self) -> int:
        """Return the number of (state, key, namespace) entries, for the metrics and for tests of the clean-up of state."""
        ...

    def close(self) -> None: ...


def apply_to_all_keys(
    backend: KeyedStateBackend, descriptor: StateDescriptor, fn: Callable[[Any, State], None]
) -> None:
    """Call fn(key, state) for every key that has a value. This implements Flink's `applyToKeyedState` of the broadcast
    pattern."""
    state = backend.get_state(descriptor, FUNCTION)
    at = backend.key_context
    before = at.key, at.namespace
    try:
        for key in backend.keys(descriptor.name):
            at.key, at.namespace = key, None
            fn(at.as_restored(key), state)
    finally:
        at.key, at.namespace = before


class RawTable(Protocol):
    """Values of one value state by key in a given namespace. Every write is recorded for the next snapshot."""

    def get(self, key: Any, namespace: Any = None) -> Any: ...

    def put(self, key: Any, value: Any, namespace: Any = None) -> None: ...

    def remove(self, key: Any, namespace: Any = None) -> None: ...

    def mapping(self, namespace: Any = None) -> dict[Any, Any] | None:
        """Return the live dictionary key -> value of the namespace (hashmap). Call `touch` for the keys that you change.

        Return None if the backend keeps its values elsewhere. In this case, use `get` and `put`.
        """
        ...

    def columns(self, shape: AccumulatorShape, count: int) -> AccumulatorColumns | None:
        """Return the accumulators of the namespace None as columns (hashmap). The columns are valid until the call of any other method.

        Return None if the accumulators are objects. A backend may convert them to columns after repeated requests.

        Args:
            count: number of keys of the request.
        """
        ...

    def touch(self, keys: Iterable[Any], namespace: Any = None) -> None:
        """Record that these keys were changed or removed in the dictionary of `mapping`."""
        ...

    def pop_namespace(self, namespace: Any) -> Iterator[tuple[Any, Any]]:
        """Remove a whole namespace, such as a window that has fired, and iterate over its content."""
        ...


class OperatorStateBackend(Protocol):
    """Operator state of one subtask: list state that is split evenly, union list state, broadcast state."""

    def for_functions(self) -> OperatorStateBackend:
        """Return the same states for user code. User code may not use the operator's own states."""
        ...

    def get_list_state(self, name: str | ListStateDescriptor, type_info: Any = None) -> OperatorListState:
        """Return the live list of this subtask's items. Change it in place. After a restore, the list has this subtask's share."""
        ...

    def get_union_list_state(self, name: str | ListStateDescriptor, type_info: Any = None) -> OperatorListState:
        """Return a list as `get_list_state` does. After a restore, each list has all items of all subtasks."""
        ...

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> Any:
        """Return a `BroadcastState` (map-shaped), which is the same on all subtasks. A restore gives each subtask a copy."""
        ...

    def check(self, name: str, item: Any) -> None:
        """Check that a snapshot could hold the item in this list state. Raise StateTypeError if not."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON values: {name: {"mode": "split"|"union"|"broadcast", "items": [base64 msgpack …]}}."""
        ...

    def restore(self, snapshots: list[dict[str, Any]], subtask: int, parallelism: int) -> None:
        """Restore from the snapshots of all previous subtasks. Depending on the mode, split, unite or copy the items."""
        ...
