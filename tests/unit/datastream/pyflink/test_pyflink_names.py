"""Programs written for PyFlink find every name that they use: modules, classes, bases, methods, parameters and
defaults.

`tools/pyflink_names.py` creates `pyflink_names.json` from a wheel of PyFlink. The section "Names that differ" of
`docs/pyflink.md` lists intentional differences in backticks. An entry is a module, a class or a method, and includes
everything inside it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[3] / "docs" / "pyflink.md"
TABLE: dict[str, Any] = json.loads((HERE / "pyflink_names.json").read_text(encoding="utf-8"))
MODULES: dict[str, dict[str, dict[str, Any]]] = TABLE["modules"]
EXPORTS: dict[str, list[str]] = TABLE["exports"]


def _listed() -> set[str]:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Names that differ\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`((?:common|datastream|metrics)\.[\w.]+)`", section))


LISTED = _listed()


def _is_listed(name: str) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:length]) in LISTED for length in range(1, len(parts) + 1))


def _problems(name: str, spec: dict[str, Any], module: str) -> Iterator[tuple[str, str]]:
    """Yield the names that differ, with the difference."""
    full = f"{module}.{name}"
    try:
        found = getattr(import_module(f"penstock.{module}"), name, None)
    except ModuleNotFoundError:
        found = None
    if found is None:
        yield full, f"{full} is missing"
    elif "function" in spec:
        yield from _signature(inspect.signature(found).parameters, spec["function"], full)
    else:
        yield from _class(found, spec, full)


def _class(cls: type, spec: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    ancestors = {base.__name__ for base in cls.__mro__}
    for base in spec.get("bases", []):
        if base not in ancestors:
            yield f"{path}.{base}", f"{path} is no {base}"
    for member in spec.get("members", []):
        if not hasattr(cls, member):
            yield f"{path}.{member}", f"{path}.{member} is missing"
    for method, expected in spec.get("methods", {}).items():
        yield from _method(cls, method, expected, f"{path}.{method}")
    for inner, inner_spec in spec.get("inner", {}).items():
        if not hasattr(cls, inner):
            yield f"{path}.{inner}", f"{path}.{inner} is missing"
        else:
            yield from _class(getattr(cls, inner), inner_spec, f"{path}.{inner}")


def _method(cls: type, method: str, expected: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    function = inspect.getattr_static(cls, method, None)
    if function is None:
        yield path, f"{path} is missing"
        return
    is_static = isinstance(function, staticmethod | classmethod)
    if expected.get("static", False) and not is_static:
        yield path, f"{path} is not static"
    parameters = list(inspect.signature(getattr(cls, method)).parameters.items())
    yield from _signature(dict(parameters[0 if is_static else 1 :]), expected["parameters"], path)


def _signature(found: Any, wanted: list[str], path: str) -> Iterator[tuple[str, str]]:
    parameters = list(found.values())
    takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    takes_names = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for index, text in enumerate(wanted):
        name, has_default, default = text.partition("=")
        if name.startswith("*"):
            if not (takes_names if name.startswith("**") else takes_any):
                yield path, f"{path} does not take {name}"
        elif index >= len(positional):
            if not takes_any:
                yield path, f"{path} has no parameter {name!r}"
        else:
            if positional[index].name != name and not takes_any:
                yield path, f"{path}: parameter {index} is {positional[index].name!r}, not {name!r}"
            if has_default:
                yield from _default(positional[index], default, path)
    for extra in positional[len(wanted) :]:
        if extra.default is extra.empty:
            yield path, f"{path} also needs {extra.name!r}"


def _default(found: inspect.Parameter, default: str, path: str) -> Iterator[tuple[str, str]]:
    if found.default is found.empty:
        yield path, f"{path}({found.name}) has no default, PyFlink's is {default}"
        return
    try:
        expected = ast.literal_eval(default)
    except (ValueError, SyntaxError):
        return
    if found.default != expected:
        yield path, f"{path}({found.name}) is {found.default!r} by default, PyFlink's is {default}"


def _names() -> Iterator[Any]:
    for module, table in MODULES.items():
        for name, spec in table.items():
            yield pytest.param(name, spec, module, id=f"{module}.{name}")


def test_the_table_is_complete() -> None:
    assert len(MODULES) > 45
    assert sum(len(spec.get("methods", {})) for table in MODULES.values() for spec in table.values()) > 800


@pytest.mark.parametrize(("name", "spec", "module"), list(_names()))
def test_a_name_is_the_same_as_in_pyflink_or_listed_as_different(name: str, spec: Any, module: str) -> None:
    problems = [text for path, text in _problems(name, spec, module) if not _is_listed(path)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("package", sorted(EXPORTS))
def test_a_package_exports_what_pyflink_exports(package: str) -> None:
    if _is_listed(package):
        return
    module = import_module(f"penstock.{package}")
    missing = [name for name in EXPORTS[package] if not hasattr(module, name) and not _is_listed(f"{package}.{name}")]
    assert not missing


def test_every_name_listed_as_different_differs() -> None:
    differing = {
        path
        for module, table in MODULES.items()
        for name, spec in table.items()
        for path, _ in _problems(name, spec, module)
    }
    differing |= {
        f"{package}.{name}"
        for package, names in EXPORTS.items()
        for name in names
        if not _has(f"penstock.{package}", name)
    }
    stale = [name for name in LISTED if not any(path == name or path.startswith(f"{name}.") for path in differing)]
    assert not stale


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ModuleNotFoundError:
        return False
