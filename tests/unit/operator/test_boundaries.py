"""Import rules: kopf in one module, a pure core without I/O, and a short allow-list of rights."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

from penstock_operator.kube.access import REQUIRED, missing

PACKAGE = Path(__file__).parents[3] / "operator/penstock_operator"
MODULES = {p.relative_to(PACKAGE).with_suffix("").as_posix(): p for p in PACKAGE.rglob("*.py")}

PURE = [
    name
    for name in MODULES
    if name.startswith(("api/", "resources/", "reconcile/decide/", "reconcile/report/"))
    or name in {f"reconcile/{m}" for m in ("at_rest", "core", "observation", "ownership", "presets/defaults")}
    or name in {f"reconcile/observe/{m}" for m in ("difference", "manifests", "scope", "terminations", "troubles")}
    or name in {f"snapshot/{m}" for m in ("access", "actions", "context", "decide")}
    or name in ("engine/account", "storage/snapshots", "settings", "errors")
]
IMPURE = {
    "asyncio",
    "httpx",
    "aiohttp",
    "kopf",
    "socket",
    "random",
    "secrets",
    "threading",
    "time",
    "os",
    "subprocess",
    "ssl",
}


@cache  # four tests ask for each module
def imports(path: Path, *, runtime: bool) -> frozenset[str]:
    """Return the modules that a module imports. `runtime` excludes those under TYPE_CHECKING."""
    tree = ast.parse(path.read_text())
    guarded = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if runtime and id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return frozenset(found)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_only_one_module_imports_kopf(name: str) -> None:
    knows = any(m.split(".")[0] == "kopf" for m in imports(MODULES[name], runtime=False))
    assert knows is (name == "process/watches")


SHARED = {
    "__main__": {"penstock.common.program.extras"},
    "api/validation": {"penstock.common.config.option_table"},
    "reconcile/program_source": {"penstock.common.errors", "penstock.common.program.git"},
    "redaction": {"penstock.common.logs.redaction"},
    "resources/memory": {"penstock.common.config.memory"},
}
"""Modules of the engine's `common` that a module of the operator uses: the same rules apply in both."""


@pytest.mark.parametrize("name", sorted(MODULES))
def test_one_module_imports_the_engine_and_others_only_named_modules_of_common(name: str) -> None:
    known = {m for m in imports(MODULES[name], runtime=False) if m.split(".")[0] == "penstock"}
    if name == "storage/penstock":
        assert known
    else:
        assert known == SHARED.get(name, set())


@pytest.mark.parametrize("name", sorted(PURE))
def test_the_core_is_pure(name: str) -> None:
    if name == "api/schema/generate":
        return
    roots = {m.split(".")[0] for m in imports(MODULES[name], runtime=True)}
    assert not roots & IMPURE
    assert not {m for m in imports(MODULES[name], runtime=True) if m.startswith("penstock_operator.kube.http")}


@pytest.mark.parametrize("name", sorted(n for n in MODULES if n.startswith("api/")))
def test_the_kinds_import_only_pydantic(name: str) -> None:
    allowed = {"pydantic", "yaml", "penstock_operator", *sys.stdlib_module_names}
    found = imports(MODULES[name], runtime=False) - SHARED.get(name, set())
    assert {m.split(".")[0] for m in found} <= allowed
    inner = {m for m in imports(MODULES[name], runtime=False) if m.startswith("penstock_operator.")}
    assert inner <= {m for m in inner if m.split(".")[1] in ("api", "errors", "redaction")}


def test_secrets_are_read_by_name_only_and_no_right_grants_more_rights() -> None:
    assert REQUIRED["", "secrets"] == {"get", "create", "patch"}
    verbs = set().union(*REQUIRED.values())
    assert not verbs & {"*", "escalate", "bind", "impersonate", "deletecollection"}
    powers = {"*", "nodes", "namespaces", "clusterroles", "clusterrolebindings", "roles", "rolebindings", "leases"}
    assert not {r for _, r in REQUIRED} & powers


def test_missing_rights_are_named() -> None:
    everything = [{"apiGroups": [g], "resources": [r], "verbs": sorted(v)} for (g, r), v in REQUIRED.items()]
    assert missing(everything) == []
    assert missing([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]) == []
    less = [rule for rule in everything if rule["resources"] != ["pods/log"]]
    assert missing(less) == ["get pods/log"]
    named = [{**rule, "resourceNames": ["x"]} if rule["resources"] == ["secrets"] else rule for rule in everything]
    assert missing(named) == ["create secrets", "get secrets", "patch secrets"]
