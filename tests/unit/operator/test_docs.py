"""The manual matches the code: it explains every reason and every metric, and every file that it names exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from penstock.jobmanager.process.launch import check
from penstock_operator.api.flinksnapshot import FlinkSnapshotSpec
from penstock_operator.api.validation import parse_spec
from penstock_operator.process.metrics import Histogram, Metric, Metrics
from penstock_operator.reconcile.decide.spec_diff import EFFECTS

ROOT = Path(__file__).parents[3]
MANUAL = ROOT / "docs/operator"
CODE = "\n".join(p.read_text() for p in (ROOT / "operator/penstock_operator").rglob("*.py"))


def reasons_of_stalled() -> set[str]:
    found = set(re.findall(r'blocked="(\w+)"', CODE))
    found |= set(re.findall(r'ctx\.(?:reject|rejection)\("(\w+)"', CODE))
    found |= set(re.findall(r'ctx\.retry\("(\w+)"', CODE))
    found |= set(re.findall(r'Trouble\(\s*"(\w+)"', CODE))
    found |= set(re.findall(r'\bFinding\("True", "(\w+)",', CODE))
    found |= set(re.findall(r'Blocked\("(\w+)"', CODE))
    return found - {"Suspended", "Finished", "Running"}


def test_every_reason_is_explained() -> None:
    text = (MANUAL / "troubleshooting.md").read_text()
    missing = [reason for reason in sorted(reasons_of_stalled()) if f"`{reason}`" not in text]
    assert not missing, f"explain {missing} in docs/operator/troubleshooting.md"


def test_every_metric_is_explained() -> None:
    text = (MANUAL / "metrics.md").read_text()
    names = {m.name for m in vars(Metrics()).values() if isinstance(m, Metric | Histogram)}
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


def commands(page: Path) -> list[list[str]]:
    """Return all lines of the page's unnamed code blocks, split as a shell splits them."""
    blocks = re.findall(r"^```\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [
        line for block in blocks for line in block.splitlines() if re.match(r"(make|helm|kubectl|python|cp) ", line)
    ]
    return [shlex.split(line, comments=True) for line in lines]


def test_make_quickstart_runs_the_commands_of_the_quickstart() -> None:
    _, *script = re.split(r"^PATH=.*$", (ROOT / "tools/quickstart.sh").read_text(), maxsplit=1, flags=re.MULTILINE)
    page = re.sub(
        r"make cluster-load IMAGE=\"?", "python -m tools.devcluster load ", (MANUAL / "quickstart.md").read_text()
    )
    page = page.replace("make cluster-up", "python -m tools.devcluster up").replace(
        "helm install", "helm upgrade --install"
    )
    lines = [line.removesuffix(" --dry-run=client -o yaml | kubectl apply -f -") for line in script[0].splitlines()]
    commands = [line for line in lines if line and not line.startswith("echo")]
    assert len(commands) == 8
    assert not [
        line for line in commands if line not in page and not line.startswith("python -m tools.devcluster load")
    ]


@pytest.mark.parametrize("page", sorted(MANUAL.glob("*.md")), ids=lambda p: p.name)
def test_commands_name_existing_files_and_targets(page: Path) -> None:
    """Files and charts exist, make knows the targets, the modules exist, and `--set` names values of the chart."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    values = yaml.safe_load((ROOT / "charts/penstock-operator/values.yaml").read_text())
    for command in commands(page):
        for path in (word for word in command if re.match(r"(docs|charts|crds|examples)/", word)):
            assert (ROOT / path).exists(), command
        if command[0] == "make":
            assert command[1] in targets, command
        if command[:2] == ["python", "-m"]:
            module = ROOT / command[2].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), command
        if "--set" in command:
            for setting in re.sub(r"\{.*?\}", "x", command[command.index("--set") + 1]).split(","):
                node = values
                for key in setting.partition("=")[0].split("."):
                    assert key in node, command
                    node = node[key]


def test_the_manifests_and_the_program_of_the_quickstart_are_valid() -> None:
    folder = MANUAL / "quickstart"
    spec = parse_spec(yaml.safe_load((folder / "flinkjob.yaml").read_text())["spec"])
    FlinkSnapshotSpec.model_validate(yaml.safe_load((folder / "flinksnapshot.yaml").read_text())["spec"])
    assert spec.job.entry is not None
    report = check(entry=str(folder / spec.job.entry), args=[], parallelism=2, against=None, configuration={})
    assert report["ok"], report


def test_the_script_in_a_manifest_of_the_quickstart_is_valid(tmp_path: Path) -> None:
    spec = parse_spec(yaml.safe_load((MANUAL / "quickstart/wordcount.yaml").read_text())["spec"])
    assert spec.job.script is not None
    program = tmp_path / "job.py"
    program.write_text(spec.job.script)
    report = check(entry=str(program), args=[str(tmp_path)], parallelism=1, against=None, configuration={})
    assert report["ok"], report
