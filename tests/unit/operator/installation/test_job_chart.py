"""The chart of a job: its values are the fields of the spec."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock_operator.api.manifest_check import check_manifests
from tools.devcluster import binaries

ROOT = Path(__file__).parents[4]
CHART = ROOT / "charts/penstock-job"
VALUES = {
    "image": "weather:1",
    "job": {"entry": "job.py", "parallelism": 3},
    "configuration": {"execution.checkpointing.interval": "10s", "taskmanager.network.numberOfBuffers": 7},
    "storage": {"checkpoints": "s3://bucket/c", "savepoints": "s3://bucket/s"},
    "worker": {"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}},
    "podTemplate": {"spec": {"nodeSelector": {"disk": "ssd"}}},
}

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="session")
def helm() -> Path:
    return binaries.MODULE.ensure(["helm"]) / "helm"


def template(helm: Path, values: dict[str, Any], tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command: list[str | Path] = [helm, "template", "weather", CHART, "--namespace", "team-a", "--values", file, *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_values_become_the_spec(helm: Path, tmp_path: Path) -> None:
    result = template(helm, {**VALUES, "labels": {"team": "a"}, "annotations": {"note": "x"}}, tmp_path)
    assert result.returncode == 0, result.stderr
    manifest = yaml.safe_load(result.stdout)
    assert manifest["spec"] == VALUES
    assert manifest["metadata"]["name"] == "weather"
    assert manifest["metadata"]["namespace"] == "team-a"
    assert manifest["metadata"]["labels"]["team"] == "a"
    assert manifest["metadata"]["annotations"] == {"note": "x"}
    assert check_manifests(result.stdout).findings == []


def test_a_program_can_be_a_file(helm: Path, tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text('print("{{ not a template }}")\n')
    values = {**VALUES, "job": {"parallelism": 1}, "name": "wordcount"}
    result = template(helm, values, tmp_path, "--set-file", f"job.script={program}")
    assert result.returncode == 0, result.stderr
    manifest = yaml.safe_load(result.stdout)
    assert manifest["spec"]["job"] == {"parallelism": 1, "script": program.read_text()}
    assert manifest["metadata"]["name"] == "wordcount"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"job": {"entry": "job.py", "paralelism": 1}}, "'paralelism' not allowed"),
        ({"storage": {"checkpoints": "s3://b/c"}}, "missing property 'savepoints'"),
        ({"upgrade": {"savepointTimeout": "10 minutes"}}, "savepointTimeout"),
    ],
)
def test_wrong_values_are_refused(helm: Path, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    result = template(helm, {**VALUES, **change}, tmp_path)
    assert result.returncode != 0
    assert words in result.stderr
