"""Kubernetes refuses a CRD with a default that a rule of the same object rejects. It evaluates the rule without the defaults of inner fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

CRDS = Path(__file__).parents[4] / "crds"


def objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each schema of an object that has a default and rules."""
    if isinstance(schema.get("default"), dict) and schema.get("x-kubernetes-validations"):
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from objects(inner, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from objects(schema["items"], f"{path}[]")


@pytest.mark.parametrize("file", sorted(CRDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_rules_accept_the_default_of_their_object(file: Path) -> None:
    manifest = yaml.safe_load(file.read_text())
    for version in manifest["spec"]["versions"]:
        for path, schema in objects(version["schema"]["openAPIV3Schema"]):
            for rule in (one["rule"] for one in schema["x-kubernetes-validations"]):
                first = rule.split("||")[0].strip()
                guarded = re.fullmatch(r"!has\(self\.(\w+)\)", first)
                if guarded is not None and guarded[1] not in schema["default"]:
                    continue  # true without the other parts
                read = set(re.findall(r"(?<!has\()self\.(\w+)", rule)) - schema["default"].keys()
                assert not read, f"{path}: the rule {rule!r} reads {read}, which the default does not have"
