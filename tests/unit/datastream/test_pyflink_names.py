"""Programs written for PyFlink find every name they use: classes, their bases, methods, parameters and defaults.

`pyflink_names.json` is the table of PyFlink 2.3's public names: module -> class -> bases, members, methods with their
parameters (a default after `=`), inner classes. Connectors and formats have tables of their own.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

NAMES: dict[str, dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "pyflink_names.json").read_text(encoding="utf-8")
)
INTERNAL_BASES = {"JavaFunctionWrapper", "TypeSerializer", "Generic"}
INTERNAL_METHODS = {
    # Steps of the triggers' own, which PyFlink forgot to hide.
    "ContinuousEventTimeTrigger.register_next_fire_timestamp",
    "ContinuousProcessingTimeTrigger.register_next_fire_timestamp",
}


def _classes() -> Iterator[Any]:
    for module, table in NAMES.items():
        for name, spec in table.items():
            yield pytest.param(module, name, spec, id=f"{module}.{name}")


def test_the_table_is_there() -> None:
    assert sum(len(spec.get("methods", {})) for table in NAMES.values() for spec in table.values()) > 600


@pytest.mark.parametrize(("module", "name", "spec"), list(_classes()))
def test_class_is_there_as_pyflink_has_it(module: str, name: str, spec: dict[str, Any]) -> None:
    cls = getattr(import_module(f"penstock.{module}"), name)
    problems = list(_differences(cls, spec, name))
    assert not problems, "\n".join(problems)


def _differences(cls: type, spec: dict[str, Any], path: str) -> Iterator[str]:
    ancestors = {base.__name__ for base in cls.__mro__}
    for base in spec.get("bases", []):
        if base not in ancestors and base not in INTERNAL_BASES:
            yield f"{path} is no {base}"
    for member in spec.get("members", []):
        if not hasattr(cls, member):
            yield f"{path}.{member} is missing"
    for method, expected in spec.get("methods", {}).items():
        if f"{path}.{method}" in INTERNAL_METHODS:
            continue
        yield from _method_differences(cls, method, expected, f"{path}.{method}")
    for inner, inner_spec in spec.get("inner", {}).items():
        if not hasattr(cls, inner):
            yield f"{path}.{inner} is missing"
        else:
            yield from _differences(getattr(cls, inner), inner_spec, f"{path}.{inner}")


def _method_differences(cls: type, method: str, expected: dict[str, Any], path: str) -> Iterator[str]:
    function = inspect.getattr_static(cls, method, None)
    if function is None:
        yield f"{path} is missing"
        return
    is_static = isinstance(function, staticmethod | classmethod)
    if expected.get("static", False) and not is_static:
        yield f"{path} is not static"
    signature = inspect.signature(getattr(cls, method))
    parameters = list(signature.parameters.values())[0 if is_static else 1 :]
    kinds = {parameter.kind for parameter in parameters}
    takes_any = inspect.Parameter.VAR_POSITIONAL in kinds
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    wanted = expected["parameters"]
    for index, text in enumerate(wanted):
        name, has_default, default = text.partition("=")
        if name.startswith("*"):
            if not takes_any:
                yield f"{path} does not take {name}"
            continue
        if index >= len(positional):
            if not takes_any:
                yield f"{path} has no parameter {name!r}"
            continue
        found = positional[index]
        if found.name != name:
            yield f"{path}: parameter {index} is {found.name!r}, not {name!r}"
        if has_default:
            yield from _default_differences(found, default, f"{path}({name})")
    for extra in positional[len(wanted) :]:
        if extra.default is extra.empty:
            yield f"{path} also needs {extra.name!r}"


def _default_differences(found: inspect.Parameter, default: str, path: str) -> Iterator[str]:
    if found.default is found.empty:
        yield f"{path} has no default, PyFlink's is {default}"
        return
    try:
        expected = ast.literal_eval(default)
    except (ValueError, SyntaxError):
        return
    if found.default != expected:
        yield f"{path} is {found.default!r} by default, PyFlink's is {default}"
