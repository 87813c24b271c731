"""A reader of the code of a function's `open`. It finds the states that `open` declares, and the places where `open` may declare more.

The reader follows the statements that `open` always executes, from the first statement on. It understands calls of the runtime context for
states, and descriptors that are made from names, constants, types and attributes. It calls no user code. A statement that would need a call
is skipped, and reading ends at a branch. Skipped statements that have access to the runtime context are recorded, because they may declare
states.

A call of `open` in a temporary process would find all states. Penstock does not do this, because `open` belongs to the tasks. It may
connect to databases, join consumer groups and load models. A call in a temporary process would use the names and
permissions of the previous job, which still runs during the check of its successor.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from datetime import timedelta
from types import FunctionType, GenericAlias, ModuleType, UnionType
from typing import Any

from penstock.common.errors import PenstockError
from penstock.state.descriptors import StateDescriptor

_GETTERS = {"get_state", "get_list_state", "get_map_state", "get_reducing_state", "get_aggregating_state"}
_ASKS = _GETTERS | {"get_operator_state_store"}
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Import, ast.ImportFrom, ast.Pass)
_GENERIC = ("builtins", "typing", "collections", "collections.abc")
"""Modules whose types take parameters in brackets without running user code."""


def is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("penstock.")


class _Unknown(Exception):
    """Error for an expression whose value cannot be found without running user code."""


class OpenMethod:
    """`open` method of one function object."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._method = inspect.getattr_static(type(function), "open", None)
        self._this = self._context = ""
        self._first_line = 0
        self._locals: dict[str, Any] = {}
        self._attributes: dict[str, Any] = {}
        self.unseen: list[str] = []
        """`file:line: statement` of skipped statements that may declare states. The list is complete after the iteration of `states`."""

    def states(self) -> Iterator[tuple[str, StateDescriptor]]:
        """Yield the getter and the descriptor of every state that is always declared and whose declaration can be read."""
        statements = self._statements()
        for at, statement in enumerate(statements):
            value = getattr(statement, "value", None)
            if not isinstance(statement, _SIMPLE) or (value is not None and self._may_call_own_methods(value)):
                self._skip(statements[at:])
                return
            getter, descriptor = self._getter(value), None
            try:
                if getter is None:
                    self._assign(statement, value)
                    continue
                descriptor = self._value(_argument(value))
            except PenstockError:
                raise
            except Exception:  # any error here means that the value is unknown. The error does not refuse the job
                descriptor = None
            self._forget(statement)
            if getter is not None and isinstance(descriptor, StateDescriptor):
                yield getter, descriptor
            elif not _is_inherited(value):
                self._skip([statement])

    def _statements(self) -> list[ast.stmt]:
        """Return the statements of `open` if the user's class defines it."""
        if self._method is None or is_ours(self._method):
            return []
        try:
            lines, self._first_line = inspect.getsourcelines(self._method)
            tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
        except (OSError, SyntaxError, TypeError):  # defined at an interactive prompt
            self.unseen.append(f"{type(self._function).__qualname__}.open, whose source cannot be read")
            return []
        if not isinstance(tree, ast.FunctionDef) or tree.decorator_list or len(tree.args.args) != 2:
            self.unseen.append(f"{type(self._function).__qualname__}.open, which is not a plain method of one argument")
            return []
        self._this, self._context = (argument.arg for argument in tree.args.args)
        return tree.body

    def _skip(self, statements: list[ast.stmt]) -> None:
        """Record the skipped statements that are able to declare a state."""
        for statement in statements:
            uses = {id(n.value): n.attr for n in ast.walk(statement) if isinstance(n, ast.Attribute)}
            named = [n for n in ast.walk(statement) if _names(n, self._context)]
            if any(uses.get(id(name), "get_state") in _ASKS for name in named):
                file = inspect.getsourcefile(self._method) or "?"
                words = ast.unparse(statement).splitlines()[0]
                self.unseen.append(f"{file}:{self._first_line + statement.lineno - 1}: {words}")

    def _getter(self, node: ast.expr | None) -> str | None:
        """Return the name of the runtime context's getter that the expression calls, or None."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GETTERS:
            return node.func.attr if _names(node.func.value, self._context) else None
        return None

    def _may_call_own_methods(self, node: ast.AST) -> bool:
        """Return whether the code calls a method of `self`, or passes `self` on. Either may change the attributes of `self`."""
        own_attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and _names(n.value, self._this)]
        called = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
        mentioned = sum(_names(n, self._this) for n in ast.walk(node))
        if mentioned > len(own_attributes) or any(attribute in called for attribute in own_attributes):
            return True
        inherited = [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and _is_super(n.value)]
        bases = sum(_names(n, "super") for n in ast.walk(node))
        return bases > len(inherited) or not all(map(self._inherits_ours, inherited))

    def _inherits_ours(self, name: str) -> bool:
        """Return whether the method of this name that `super()` finds is Penstock's, or does not exist. Penstock's methods change no
        attributes of the user.
        """
        classes = type(self._function).__mro__
        definer = next(i for i, cls in enumerate(classes) if "open" in vars(cls))
        found = next((vars(cls)[name] for cls in classes[definer + 1 :] if name in vars(cls)), None)
        return found is None or is_ours(found)

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
        """Forget the names that the statement assigns, because their values are unknown."""
        for target in _targets(statement):
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    self._locals.pop(node.id, None)
                elif isinstance(node, ast.Attribute):
                    self._attributes[node.attr] = _Unknown

    # --- expressions ------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr | None) -> Any:
        """Return the value of an expression.

        Raises:
            _Unknown: the value cannot be found without running user code.
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
        if not callable(called) or not (is_ours(called) or called is timedelta):
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
        return getattr(owner, name, None) if is_ours(owner) else _static(owner, name)


def _static(owner: Any, name: str) -> Any:
    """Return a plain attribute. A property is refused, because it is user code."""
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
    """Return the only argument of a call. None means that the call has other arguments."""
    arguments: list[ast.expr] = [*call.args, *(keyword.value for keyword in call.keywords)]
    return arguments[0] if len(arguments) == 1 else None


def _names(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _names(node.func, "super")


def _is_inherited(node: ast.AST | None) -> bool:
    """Return whether the code calls a method of `super()`. The caller has checked that it is Penstock's method."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_super(node.func.value)


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def _closure(method: FunctionType) -> dict[str, Any]:
    cells = zip(method.__code__.co_freevars, method.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _never_called(*arguments: Any) -> Any:
    """Stand in for a user's function in a descriptor. This function is never called, because the check reduces no values."""
    raise AssertionError(arguments)
