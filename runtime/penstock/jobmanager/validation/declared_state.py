"""States that a job cannot have, refused as it is built: before anything of it is accepted, claimed or written.

Functions declare their states in `open`, and `open` belongs to the tasks: it may connect to databases, load models, or need
what only a worker has. So it is not called here; it is read (`open_method`). What was found is asked of a runtime context like the tasks', which refuses what it
would refuse there. States that operators keep for themselves (a window's contents), and the types of keys, are asked for
as well. The tasks still refuse whatever is not seen here.

The same reading tells whether a snapshot's state has become another type in the program (`check_stored_states`), and of
which functions that cannot be told (`unseen_states`): nobody is to believe that what was not looked at fits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.checkpoint.files.manifest import Manifest, OperatorState
from penstock.common.errors import PenstockError
from penstock.functions.operator_context import OperatorContext
from penstock.functions.runtime_context import RuntimeContextImpl
from penstock.functions.state.state_attributes import state_attributes
from penstock.graph.job_graph import JobGraph, OperatorNode
from penstock.jobmanager.validation.open_method import OpenMethod, is_ours
from penstock.state.backend import KeyContext
from penstock.state.descriptors import StateDescriptor
from penstock.state.hashmap.backend import HashMapStateBackend
from penstock.state.key_groups import key_group_range
from penstock.state.operator_state import OperatorStateStore
from penstock.state.registry import Registration
from penstock.state.snapshot_format.segment import StateInfo
from penstock.taskmanager.operators.factory import create_operator
from penstock.taskmanager.worker import SystemClock

logger = logging.getLogger(__name__)


def check_declared_states(graph: JobGraph) -> None:
    """
    Raises:
        KeyedStateNotAvailable: state without a key; remedy: key_by.
        StateNameConflict: one name, two states of an operator.
        StateTypeError: a type of values or keys without encoding.
        InvalidJob: a descriptor that does not belong to its getter, or makes no sense.
    """
    for node in graph.operators:
        context = _context(node)
        with context.named_in_errors():
            context.keyed_state = _keyed_state(node) if node.operation.is_keyed else None
            create_operator(node.operation).declare_states(context)
            for getter, descriptor in _declared(node):
                _ask(RuntimeContextImpl(context), getter, descriptor)


def check_stored_states(graph: JobGraph, manifest: Manifest) -> None:
    """Whether what the functions declare can read what the snapshot has under the same uid and name.

    An operator without keyed state in the snapshot has nothing to be read: its states may have become anything.

    Raises:
        StateSchemaIncompatible: another kind or type; shows both.
    """
    stored = {info.uid: info.states for info in manifest.operators if _has_rows(manifest, info.uid)}
    for node in graph.operators:
        names = stored.get(node.uid)
        if not names:
            continue
        context = _context(node)
        with context.named_in_errors():
            for _, descriptor in _declared(node):
                if descriptor.name in names:
                    found = msgspec.convert(names[descriptor.name], StateInfo)
                    Registration.of(descriptor, node.name, context.clock).reader(found)


def unseen_states(graph: JobGraph, manifest: Manifest) -> list[dict[str, str]]:
    """Where functions may declare states that `check_stored_states` has not held against the snapshot.

    Only of operators that have keyed state in it. Each: operator, its location, and as `statement` what was not followed.
    """
    found = []
    for node in graph.operators:
        if not _has_rows(manifest, node.uid):
            continue
        for function in map(_unwrapped, node.operation.user_functions()):
            method = OpenMethod(function)
            list(method.states())
            found += [
                {"operator": node.name, "location": node.user_location, "statement": statement}
                for statement in method.unseen
            ]
    return found


def _has_rows(manifest: Manifest, uid: str) -> bool:
    return any(handle.get("files") for handle in manifest.states.get(uid, OperatorState()).keyed)


def _declared(node: OperatorNode) -> Iterator[tuple[str, StateDescriptor]]:
    for function in map(_unwrapped, node.operation.user_functions()):
        for attribute in state_attributes(function):
            yield attribute.getter, attribute.descriptor
        yield from OpenMethod(function).states()


def _ask(context: RuntimeContextImpl, getter: str, descriptor: StateDescriptor) -> None:
    try:
        getattr(context, getter)(descriptor)
    except PenstockError:
        raise
    except Exception as error:  # no refusal; should the task meet it too, it says so
        logger.info("state %r is seen in the task: %r", descriptor.name, error)


def _context(node: OperatorNode) -> OperatorContext:
    """As a task would make it."""
    return OperatorContext(
        uid=node.uid,
        name=node.name,
        subtask=0,
        parallelism=node.parallelism,
        max_parallelism=node.max_parallelism,
        attempt=0,
        clock=SystemClock(),
        operator_state=OperatorStateStore(node.name),
        user_location=node.user_location,
    )


def _keyed_state(node: OperatorNode) -> HashMapStateBackend:
    """It refuses the same states as the other backend."""
    return HashMapStateBackend(
        key_group_range=key_group_range(0, node.parallelism, node.max_parallelism),
        max_parallelism=node.max_parallelism,
        key_context=KeyContext(),
        clock=SystemClock(),
        operator_name=node.name,
        key_type=node.operation.key_type,
    )


def _unwrapped(function: Any) -> Any:
    """The user's function inside of Penstock's own."""
    while is_ours(type(function)) and "_function" in getattr(function, "__dict__", ()):
        function = function._function
    return function
