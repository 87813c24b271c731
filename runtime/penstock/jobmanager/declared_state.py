"""States that a job cannot have, refused as it is built: before anything of it is accepted, claimed or written.

Functions declare their states in `open`, and `open` belongs to the tasks: it may connect to databases, load models, or need
what only a worker has. So it is not called here; it is read. What it does in any case, statement by statement from its
first one, is followed as far as that is asking the runtime context for states and making the descriptors for it from names,
constants, types and attributes. Nothing of the user's is called: where that would be needed, a statement counts for nothing,
and where the way forks, reading ends. What was found is asked of a runtime context like the tasks', which refuses what it
would refuse there. States that operators keep for themselves (a window's contents), and the types of keys, are asked for
as well. The tasks still refuse whatever is not seen here.

The same reading tells whether a snapshot's state has become another type in the program (`check_stored_states`).
"""

from __future__ import annotations

import ast
import builtins
import inspect
import logging
import textwrap
from collections.abc import Iterable, Iterator
from datetime import timedelta
from types import FunctionType, GenericAlias, ModuleType, UnionType
from typing import Any

import msgspec

from penstock.checkpoint.manifest import Manifest, OperatorState
from penstock.common.errors import PenstockError
from penstock.datastream.runtime_context import RuntimeContextImpl
from penstock.datastream.state import StateDescriptor
from penstock.graph.job_graph import JobGraph, OperatorNode
from penstock.state.backend import KeyContext
from penstock.state.hashmap import HashMapStateBackend
from penstock.state.key_groups import key_group_range
from penstock.state.operator_state import OperatorStateStore
from penstock.state.registry import Registration
from penstock.state.segment import StateInfo
from penstock.taskmanager.operator import OperatorContext
from penstock.taskmanager.worker import SystemClock

logger = logging.getLogger(__name__)

_GETTERS = {"get_state", "get_list_state", "get_map_state", "get_reducing_state", "get_aggregating_state"}
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Import, ast.ImportFrom, ast.Pass)
_GENERIC = ("builtins", "typing", "collections", "collections.abc")
"""Modules whose types take parameters in brackets, without code of the user's."""


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
            context.keyed_state = _keyed_state(node) if node.operator.is_keyed else None
            node.operator.declare_states(context)
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


def _has_rows(manifest: Manifest, uid: str) -> bool:
    return any(handle.get("files") for handle in manifest.states.get(uid, OperatorState()).keyed)


def _declared(node: OperatorNode) -> Iterator[tuple[str, StateDescriptor]]:
    for function in map(_unwrapped, node.operator.user_functions()):
        yield from _OpenMethod(function).states()


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
        key_type=node.operator.key_type,
    )


def _unwrapped(function: Any) -> Any:
    """The user's function inside of Penstock's own."""
    while _is_ours(type(function)) and "_function" in getattr(function, "__dict__", ()):
        function = function._function
    return function


def _is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("penstock.")


class _Unknown(Exception):
    """What an expression gives cannot be told without running code of the user's."""


class _OpenMethod:
    """`open` of one function object."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._method = inspect.getattr_static(type(function), "open", None)
        self._this = self._context = ""
        self._locals: dict[str, Any] = {}
        self._attributes: dict[str, Any] = {}

    def states(self) -> Iterator[tuple[str, StateDescriptor]]:
        """Getter and descriptor of every state that is asked for in any case, as far as that can be told."""
        for statement in self._statements():
            value = getattr(statement, "value", None)
            if value is not None and self._may_change_itself(value):
                return
            getter, descriptor = self._getter(value), None
            try:
                if getter is None:
                    self._assign(statement, value)
                    continue
                descriptor = self._value(_argument(value))
            except PenstockError:
                raise
            except Exception:  # whatever keeps it from being known here is no refusal
                descriptor = None
            self._forget(statement)
            if getter is not None and isinstance(descriptor, StateDescriptor):
                yield getter, descriptor

    def _statements(self) -> Iterator[ast.stmt]:
        """The first ones of `open`, up to one behind which nothing is certain."""
        if not isinstance(self._method, FunctionType) or _is_ours(self._method):
            return
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(self._method))).body[0]
        except (OSError, SyntaxError):  # typed at a prompt
            return
        if not isinstance(tree, ast.FunctionDef) or tree.decorator_list or len(tree.args.args) != 2:
            return
        self._this, self._context = (argument.arg for argument in tree.args.args)
        for statement in tree.body:
            if not isinstance(statement, _SIMPLE):
                return
            yield statement

    def _getter(self, node: ast.expr | None) -> str | None:
        """Which of the runtime context's it calls, if it is such a call."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GETTERS:
            return node.func.attr if _names(node.func.value, self._context) else None
        return None

    def _may_change_itself(self, node: ast.AST) -> bool:
        """It calls a method of its own or of a base, or hands itself to somebody: its attributes may be others behind that."""
        own = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and _names(n.value, self._this)]
        called = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
        mentioned = sum(_names(n, self._this) for n in ast.walk(node))
        if mentioned > len(own) or any(attribute in called for attribute in own):
            return True
        inherited = [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and _is_super(n.value)]
        bases = sum(_names(n, "super") for n in ast.walk(node))
        return bases > len(inherited) or not all(map(self._inherits_ours, inherited))

    def _inherits_ours(self, name: str) -> bool:
        """What `super()` finds under this name is Penstock's, which changes nothing of the user's, or nothing."""
        classes = type(self._function).__mro__
        definer = next(i for i, cls in enumerate(classes) if "open" in vars(cls))
        found = next((vars(cls)[name] for cls in classes[definer + 1 :] if name in vars(cls)), None)
        return found is None or _is_ours(found)

    def _assign(self, statement: ast.stmt, value: ast.expr | None) -> None:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or value is None:
            raise _Unknown
        known = self._value(value)
        for target in _targets(statement):
            if isinstance(target, ast.Name):
                self._locals[target.id] = known
            elif isinstance(target, ast.Attribute) and _names(target.value, self._this):
                self._attributes[target.attr] = known
            else:
                raise _Unknown

    def _forget(self, statement: ast.stmt) -> None:
        """It sets something, and nobody knows to what."""
        for target in _targets(statement):
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    self._locals.pop(node.id, None)
                elif isinstance(node, ast.Attribute):
                    self._attributes[node.attr] = _Unknown

    # --- expressions ------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr | None) -> Any:
        """
        Raises:
            _Unknown: see there.
        """
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._name(node.id)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Tuple():
                return tuple(map(self._value, node.elts))
            case ast.List():
                return list(map(self._value, node.elts))
            case ast.Lambda():
                return _never_called
            case ast.Subscript():
                generic, parameters = self._value(node.value), self._value(node.slice)
                if getattr(generic, "__module__", "") in _GENERIC:
                    return generic[parameters]
            case ast.BinOp(op=ast.BitOr()):
                sides = self._value(node.left), self._value(node.right)
                if all(side is None or type(side) in (type, GenericAlias, UnionType) for side in sides):
                    return sides[0] | sides[1]
            case ast.Call():
                return self._called(node)
        raise _Unknown

    def _called(self, node: ast.Call) -> Any:
        called = self._value(node.func)
        if not callable(called) or not (_is_ours(called) or called is timedelta):
            raise _Unknown
        arguments = list(map(self._value, node.args))
        return called(*arguments, **{keyword.arg or "": self._value(keyword.value) for keyword in node.keywords})

    def _name(self, name: str) -> Any:
        code = self._method.__code__
        if name == self._this:
            raise _Unknown
        if name in code.co_varnames or name in code.co_cellvars:
            places: Iterable[dict[str, Any]] = (self._locals,)
        else:
            places = (_closure(self._method), self._method.__globals__, vars(builtins))
        for place in places:
            if name in place:
                return place[name]
        raise _Unknown

    def _attribute(self, node: ast.Attribute) -> Any:
        name = node.attr
        if _names(node.value, self._this):
            found = self._attributes[name] if name in self._attributes else _static(self._function, name)
            if found is _Unknown:
                raise _Unknown
            return found
        owner = self._value(node.value)
        return getattr(owner, name, None) if _is_ours(owner) else _static(owner, name)


def _static(owner: Any, name: str) -> Any:
    """An attribute that is simply there; not a property, which is the user's code."""
    if isinstance(owner, ModuleType):
        found = vars(owner).get(name, _Unknown)
    else:
        found = inspect.getattr_static(owner, name, _Unknown)
        if hasattr(type(found), "__get__"):
            raise _Unknown
    if found is _Unknown:
        raise _Unknown
    return found


def _argument(call: Any) -> ast.expr | None:
    """The only one; None: there are others."""
    given: list[ast.expr] = [*call.args, *(keyword.value for keyword in call.keywords)]
    return given[0] if len(given) == 1 else None


def _names(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _names(node.func, "super")


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def _closure(method: FunctionType) -> dict[str, Any]:
    cells = zip(method.__code__.co_freevars, method.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _never_called(*arguments: Any) -> Any:
    """Stands for a function of the user's in a descriptor: nothing is reduced here."""
    raise AssertionError(arguments)
