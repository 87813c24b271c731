"""The manual keeps up with the code: every reason and every metric is in it, and every file it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock_operator.metrics import Metrics
from penstock_operator.reconcile.spec_diff import EFFECTS

ROOT = Path(__file__).parents[3]
MANUAL = ROOT / "docs/operator"
CODE = "\n".join(p.read_text() for p in (ROOT / "operator/penstock_operator").rglob("*.py"))


def reasons_of_stalled() -> set[str]:
    found = set(re.findall(r'blocked="(\w+)"', CODE))
    found |= set(re.findall(r'reject\(ctx, "(\w+)"', CODE))
    found |= set(re.findall(r'ctx\.retry\("(\w+)"', CODE))
    found |= set(re.findall(r'Trouble\(\s*"(\w+)"', CODE))
    found |= set(re.findall(r'_Finding\("True", "(\w+)",', CODE))
    found |= set(re.findall(r'Blocked\("(\w+)"', CODE))
    found |= set(
        re.findall(r'reason="(\w+)"', (ROOT / "operator/penstock_operator/reconcile/steps/start.py").read_text())
    )
    return found - {"Suspended", "Finished", "Running"}


def test_every_reason_is_explained() -> None:
    text = (MANUAL / "troubleshooting.md").read_text()
    missing = [reason for reason in sorted(reasons_of_stalled()) if f"`{reason}`" not in text]
    assert not missing, f"explain {missing} in docs/operator/troubleshooting.md"


def test_every_metric_is_explained() -> None:
    text = (MANUAL / "metrics.md").read_text()
    names = {m.name for m in vars(Metrics()).values()}
    assert not [name for name in names if f"`{name}`" not in text]


def test_every_field_with_an_effect_is_in_the_table_of_changes() -> None:
    text = (MANUAL / "upgrade.md").read_text()
    special = {
        "job.savepointTriggerNonce",
        "job.checkpointTriggerNonce",
        "imagePullPolicy",
        "imagePullSecrets",
        "podTemplate",
    }
    missing = [p for p in EFFECTS if p not in special and f"`{p}`" not in text and f"`{p.split('.')[0]}`" not in text]
    assert not missing


@pytest.mark.parametrize("page", sorted(MANUAL.glob("*.md")), ids=lambda p: p.name)
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
    for path in re.findall(r"`((?:reconcile|tests|docs|charts|crds)/[\w/.-]+)`", text):
        roots = (ROOT, ROOT / "operator/penstock_operator", ROOT / "charts/penstock-operator")
        assert any((root / path).exists() for root in roots), path
