"""List the public names of PyFlink's DataStream API, from a wheel of `apache-flink`. A test checks that Penstock has all of them.

    pip download --no-deps apache-flink==2.3.0
    python -m tools.pyflink_names apache_flink-2.3.0-*.whl > tests/unit/datastream/pyflink/pyflink_names.json

The list has only names:

- packages with their exports
- modules with their classes and functions
- classes with their bases, members, inner classes, and methods with parameters and defaults

It leaves out private names, which begin with an underscore. It also leaves out names that deal with objects of the
JVM: parameters `j_…`, `get_java_…`, `to_j_…` and wrappers.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tools.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("common", "datastream", "metrics")
TEST_FOLDERS = {"tests", "examples"}
_NO_BASES = {"object", "Generic", "ABC", "JavaObjectWrapper", "JavaFunctionWrapper"}
_OF_THE_JVM = re.compile(r"get_java_.+|to_j_.+|from_j_.+|Java\w+Wrapper|create_java_.+")


def names_of(sources: dict[str, str]) -> dict[str, Any]:
    """Return the table of names.

    Args:
        sources: text of modules by path below the package `pyflink`: `common/time.py`.

    >>> names_of({"common/time.py": "class Time:\\n    def __init__(self, ms: int = 5): pass"})["modules"]
    {'common.time': {'Time': {'methods': {'__init__': {'parameters': ['ms=5']}}}}}
    """
    exports: dict[str, list[str]] = {}
    modules: dict[str, dict[str, Any]] = {}
    for path, text in sorted(sources.items()):
        tree = ast.parse(text)
        module = ".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__init__")
        exported = _exported(tree)
        if exported:
            exports[module] = sorted(exported)
        if not path.endswith("__init__.py"):
            found = dict(_public(tree.body))
            if found:
                modules[module] = found
    return {"exports": exports, "modules": modules}


def _exported(tree: ast.Module) -> list[str]:
    """Return the names in `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def _public(body: list[ast.stmt]) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and _is_public(node.name):
            yield node.name, _class(node)
        elif isinstance(node, ast.FunctionDef) and _is_public(node.name):
            yield node.name, {"function": _parameters(node, skip=0)}


def _class(node: ast.ClassDef) -> dict[str, Any]:
    bases = [name for name in map(_name, node.bases) if name not in _NO_BASES]
    methods: dict[str, Any] = {}
    members: list[str] = []
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            if not _is_public(item.name) and item.name != "__init__":
                continue
            decorators = set(map(_name, item.decorator_list))
            if "property" in decorators:
                members.append(item.name)
                continue
            is_static = bool(decorators & {"staticmethod", "classmethod"})
            parameters = _parameters(item, skip=0 if "staticmethod" in decorators else 1)
            if any(parameter.startswith("j_") for parameter in parameters):
                continue
            methods[item.name] = {"static": True, "parameters": parameters} if is_static else {"parameters": parameters}
        elif isinstance(item, ast.Assign):
            members += [t.id for t in item.targets if isinstance(t, ast.Name) and not t.id.startswith("_")]
    inner = {item.name: _class(item) for item in node.body if isinstance(item, ast.ClassDef) and _is_public(item.name)}
    table = {"bases": bases, "members": members, "methods": methods, "inner": inner}
    return {key: value for key, value in table.items() if value}


def _is_public(name: str) -> bool:
    return not name.startswith("_") and _OF_THE_JVM.fullmatch(name) is None


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript | ast.Call):
        return _name(node.value if isinstance(node, ast.Subscript) else node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _parameters(node: ast.FunctionDef, skip: int) -> list[str]:
    arguments = node.args
    positional = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args]]
    without = len(positional) - len(arguments.defaults)
    texts = [
        name if index < without else f"{name}={ast.unparse(arguments.defaults[index - without])}"
        for index, name in enumerate(positional)
    ]
    if arguments.vararg is not None:
        texts.append(f"*{arguments.vararg.arg}")
    texts += [
        argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}"
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        texts.append(f"**{arguments.kwarg.arg}")
    return texts[skip:]


def sources_of(wheel: str) -> dict[str, str]:
    """Return the text of the DataStream API's modules in a wheel, by path below `pyflink`."""
    with zipfile.ZipFile(wheel) as archive:
        paths = [path for path in archive.namelist() if path.endswith(".py") and path.startswith("pyflink/")]
        chosen = {path.removeprefix("pyflink/"): path for path in paths if _is_api(PurePosixPath(path).parts[1:])}
        if not chosen:
            raise Unsupported(f"{wheel} has no PyFlink modules", remedy="pass a wheel of apache-flink")
        return {name: archive.read(path).decode() for name, path in chosen.items()}


def _is_api(parts: tuple[str, ...]) -> bool:
    return len(parts) > 1 and parts[0] in PACKAGES and not TEST_FOLDERS & set(parts)


def main(wheel: str) -> None:
    print(json.dumps(names_of(sources_of(wheel)), indent=1, sort_keys=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
