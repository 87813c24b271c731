"""Checks of the states that functions declare. An invalid job is refused while it is built, before anything is accepted, claimed or
written.

Functions declare their states in `open`, which belongs to the tasks. It may connect to databases, load models, or need resources that only
a worker has. So this module reads the code of `open` and does not call it (see `open_method`). It passes the declarations to a runtime
context that refuses the same states as the context of a task. It also checks the states that operators declare themselves (for example the
contents of a window), and the types of keys. Tasks still refuse invalid states that this module cannot see.

The same declarations show whether the type of a snapshot's state has changed in the program (`check_stored_states`). `unseen_states` lists
the functions that could not be checked. So users do not assume that the states of these functions are compatible.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.checkpoint.files.manifest import Manifest, OperatorState
from penstock.common.errors import PenstockError
from penstock.functions.operator_context import OperatorContext, SystemClock
from penstock.functions.runtime_context import RuntimeContextImpl
from penstock.functions.state.state_attributes import state_attributes
from penstock.graph.job_graph import JobGraph, OperatorNode
from penstock.jobmanager.validation.open_method import OpenMethod, is_ours
from penstock.state.descriptors import StateDescriptor
from penstock.state.hashmap.backend import HashMapStateBackend
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import key_group_range
from penstock.state.operator_state import OperatorStateStore
from penstock.state.registry import Registration
from penstock.state.snapshot_format.segment import StateInfo
from penstock.taskmanager.operators.factory import create_operator

logger = logging.getLogger(__name__)


def check_declared_states(graph: JobGraph) -> None:
    """Check the states that functions declare.

    Raises:
        KeyedStateNotAvailable: a function on a stream without keys declares keyed state. The remedy is key_by.
        StateNameConflict: two states of an operator have the same name.
        StateTypeError: values or keys have a type that cannot be encoded.
        InvalidJob: a descriptor does not belong to its getter, or is invalid.
    """
    for node in graph.operators:
        context = _context(node)
        with context.named_in_errors():
            context.keyed_state = _keyed_state(node) if node.operation.is_keyed else None
            create_operator(node.operation).declare_states(context)
            for getter, descriptor in _declared(node):
                _call_getter(RuntimeContextImpl(context), getter, descriptor)


def check_stored_states(graph: JobGraph, manifest: Manifest) -> None:
    """Check that the declared states can read the snapshot's states with the same uid and name.

    An operator without keyed state in the snapshot reads nothing, so its states may have any type.

    Raises:
        StateSchemaIncompatible: a declared state has another kind or type than the stored state. The error shows both.
    """
    stored = {info.uid: info.states for info in manifest.operators if _has_rows(manifest, info.uid)}
    for node in graph.operators:
        if not stored.get(node.uid):
            continue
        context = _context(node)
        with context.named_in_errors():
            for _, descriptor in _declared(node):
                for found in _stored_as(manifest, node.uid, stored[node.uid], descriptor.name):
                    Registration.of(descriptor, node.name, context.clock).reader(found)


def _stored_as(manifest: Manifest, uid: str, states: dict[str, Any], name: str) -> Iterator[StateInfo]:
    """Yield the stored forms of a state. Its subtasks may have stored it in different forms."""
    found = [states.get(name)]
    for handle in manifest.states.get(uid, OperatorState()).keyed:
        found.append(handle.get("states", {}).get(name))
        found += [info for _, _, info in handle.get("origins", {}).get(name, ())]
    distinct: list[Any] = []
    for info in found:
        if info is not None and info not in distinct:
            distinct.append(info)
            yield msgspec.convert(info, StateInfo)


def unseen_states(graph: JobGraph, manifest: Manifest) -> list[dict[str, str]]:
    """Return the locations at which functions may declare states that `check_stored_states` has not compared with the snapshot.

    Only operators with keyed state in the snapshot are included. Each entry has the operator, its location, and the skipped code as
    `statement`.
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


def declared_states(node: OperatorNode) -> tuple[set[str], bool]:
    """Return the names of the states that the operator's functions declare, and whether the list is certainly complete."""
    names, is_complete = set(), True
    for function in map(_unwrapped, node.operation.user_functions()):
        names |= {attribute.descriptor.name for attribute in state_attributes(function)}
        method = OpenMethod(function)
        names |= {descriptor.name for _, descriptor in method.states()}
        is_complete = is_complete and not method.unseen
    return names, is_complete


def _has_rows(manifest: Manifest, uid: str) -> bool:
    return any(handle.get("files") for handle in manifest.states.get(uid, OperatorState()).keyed)


def _declared(node: OperatorNode) -> Iterator[tuple[str, StateDescriptor]]:
    for function in map(_unwrapped, node.operation.user_functions()):
        for attribute in state_attributes(function):
            yield attribute.getter, attribute.descriptor
        yield from OpenMethod(function).states()


def _call_getter(context: RuntimeContextImpl, getter: str, descriptor: StateDescriptor) -> None:
    try:
        getattr(context, getter)(descriptor)
    except PenstockError:
        raise
    except Exception as error:  # does not refuse the job: if a task has the same error, the task reports it
        logger.info("state %r is only known at run time: %r", descriptor.name, error)


def _context(node: OperatorNode) -> OperatorContext:
    """Return the operator context that a task would create."""
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
    """Return a hashmap state backend for the check. The rocksdb backend refuses the same states."""
    return HashMapStateBackend(
        key_group_range=key_group_range(0, node.parallelism, node.max_parallelism),
        max_parallelism=node.max_parallelism,
        key_context=KeyContext(),
        clock=SystemClock(),
        operator_name=node.name,
        key_type=node.operation.key_type,
    )


def _unwrapped(function: Any) -> Any:
    """Return the user's function inside Penstock's wrappers."""
    while is_ours(type(function)) and "_function" in getattr(function, "__dict__", ()):
        function = function._function
    return function
