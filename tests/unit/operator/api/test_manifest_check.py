"""Manifests are checked without a cluster, and each problem has its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock_operator.api.manifest_check import check_manifests

ROOT = Path(__file__).resolve().parents[4]
JOB = """\
apiVersion: penstock.dev/v1beta1
kind: FlinkJob
metadata:
  name: weather
spec:
  image: weather:1
  job:
    entry: job.py
    parallelism: 2
  worker:
    slots: 1
  configuration:
    execution.checkpointing.interval: 10s
  storage:
    checkpoints: s3://bucket/checkpoints
    savepoints: s3://bucket/savepoints
    secretName: keys
"""
SNAPSHOT = """\
apiVersion: penstock.dev/v1beta1
kind: FlinkSnapshot
metadata:
  name: nightly
spec:
  jobRef: {name: weather}
  savepoint: {}
"""


CLUSTER = """\
apiVersion: penstock.dev/v1beta1
kind: FlinkCluster
metadata:
  name: shared
spec:
  image: engine:1
  storage: {checkpoints: "s3://bucket/checkpoints", savepoints: "s3://bucket/savepoints"}
---
apiVersion: penstock.dev/v1beta1
kind: FlinkJob
metadata:
  name: small
spec:
  cluster: shared
  job: {script: "print(1)"}
"""


def problems(text: str) -> list[tuple[int, str]]:
    return [(finding.line, str(finding)) for finding in check_manifests(text).findings]


def test_correct_manifests_have_no_problem_and_name_their_secrets() -> None:
    report = check_manifests(f"{JOB}---\n{SNAPSHOT}---\napiVersion: v1\nkind: ConfigMap\n")
    assert report.findings == []
    assert report.manifests == ["FlinkJob weather", "FlinkSnapshot nightly"]
    assert report.secrets == {"keys"}


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("slots: 1", "slot: 1", 11, "spec.worker.slot: this field does not exist. Did you mean slots?"),
        ("  worker:", "  wroker:", 10, "spec.wroker: this field does not exist. Did you mean worker?"),
        ("metadata:", "metdata:", 3, "metdata: this field does not exist. Did you mean metadata?"),
        ("parallelism: 2", "parallelism: two", 9, "spec.job.parallelism"),
        ("parallelism: 2", "parallelism: 200", 9, "200 is more than maxParallelism 128"),
        ("entry: job.py", "args: [a]", 7, "there must be exactly one of entry, script and sql"),
        ("s3://bucket/savepoints", "bucket/savepoints", 16, "spec.storage.savepoints"),
        ("    execution.checkpointing.interval: 10s", "    rest.port: 1", 13, "The port is always 8081"),
        ("v1beta1", "v1", 1, "apiVersion: penstock.dev/v1 does not exist. Write penstock.dev/v1beta1."),
        ("kind: FlinkJob", "kind: FlinkJobs", 2, "'FlinkJobs' is not a kind of penstock.dev"),
        ("name: weather\n", f"name: {'w' * 46}\n", 4, "has 46 characters"),
        ("  image: weather:1\n", "", 5, "spec.image: Field required"),
        ("    entry: job.py", "   entry: job.py", 9, "Correct the syntax"),
    ],
)
def test_a_problem_has_its_line(old: str, new: str, line: int, words: str) -> None:
    assert old in JOB
    found = problems(JOB.replace(old, new, 1))
    assert any(at == line and words in text for at, text in found), found


def test_a_problem_of_a_second_document_has_the_line_in_the_file() -> None:
    found = problems(f"{JOB}---\n{SNAPSHOT.replace('savepoint: {}', 'savepoints: {}')}")
    line = JOB.count("\n") + 1 + 7
    assert (line, "FlinkSnapshot nightly: spec.savepoints: this field does not exist. Did you mean savepoint?") in found


def test_names_in_free_parts_are_not_checked() -> None:
    text = (
        JOB + "  podTemplate:\n    spec:\n      nodeSelector: {disk: ssd}\n  serviceAccount:\n    annotations: {a: b}\n"
    )
    assert problems(text) == []


def test_the_manifests_of_the_project_are_valid() -> None:
    files = [*ROOT.glob("examples/**/*.yaml"), *ROOT.glob("docs/**/*.yaml")]
    jobs = [file for file in files if "kind: FlinkJob" in file.read_text()]
    assert jobs
    for file in jobs:
        assert problems(file.read_text()) == [], file


def test_the_command_prints_file_and_line_and_exits_with_1(tmp_path: Path) -> None:
    bad = tmp_path / "a" / "bad.yaml"
    bad.parent.mkdir()
    bad.write_text(JOB.replace("slots", "slot"))
    (tmp_path / "a" / "chart.yaml").write_text("{{ not yaml }}: [")
    result = CliRunner().invoke(app, ["validate", str(tmp_path)])
    assert result.exit_code == 1
    assert f"{bad}:11: FlinkJob weather: spec.worker.slot: this field does not exist." in result.output
    bad.write_text(JOB)
    result = CliRunner().invoke(app, ["validate", str(bad)])
    assert result.exit_code == 0, result.output
    assert "1 manifest in 1 file: no problem\nSecrets that must exist: keys\n" in result.output
    result = CliRunner().invoke(app, ["validate", str(tmp_path / "absent.yaml")])
    assert result.exit_code == 1
    assert "absent.yaml" in result.output


def test_clusters_and_their_jobs_are_checked() -> None:
    report = check_manifests(CLUSTER)
    assert report.findings == []
    assert report.manifests == ["FlinkCluster shared", "FlinkJob small"]
    assert problems(CLUSTER.replace("  cluster: shared", "  cluster: shared\n  image: job:1"))[0] == (
        15,
        "FlinkJob small: spec.image: this field belongs to the FlinkCluster that runs the job. Remove it here, and set "
        "spec.image of the FlinkCluster.",
    )
    assert problems(CLUSTER.replace("image: engine:1", "imag: engine:1"))[0][0] == 6
