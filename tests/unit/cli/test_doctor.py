"""`penstock doctor` reports the problems of a machine and their remedies."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.common.configuration import Configuration
from penstock.jobmanager.process.doctor import Finding, Health, examine
from penstock.taskmanager.hardware import Machine

if TYPE_CHECKING:
    from tests.unit.cli.terminal import Terminal


def found(settings: dict[str, str], machine: Machine | None = None) -> dict[str, Finding]:
    return {finding.subject: finding for finding in examine(Configuration(settings), machine)}


def test_a_good_machine_passes(terminal: Terminal, tmp_path: Path) -> None:
    outcome = terminal("doctor", "-D", f"execution.checkpointing.dir={tmp_path.as_uri()}")
    assert outcome.code == 0
    assert "BAD" not in outcome.out
    assert f"ok       checkpoint storage: {tmp_path.as_uri()}, with conditional writes" in outcome.lines
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_storage_that_refuses_is_reported_together_with_all_other_checks(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outcome = terminal("doctor", "-D", f"execution.checkpointing.dir={(tmp_path / 'file').as_uri()}/below")
    assert outcome.code == 1
    assert any(line.startswith("BAD") for line in outcome.lines)
    assert any(line.startswith("ok       Java: ") for line in outcome.lines)


def test_a_misspelt_key_is_named_without_a_line_of_the_engine(terminal: Terminal) -> None:
    outcome = terminal("doctor", "-D", "parallelism.defalt=3")
    assert outcome.code == 2
    assert outcome.err.splitlines() == [
        "error [USAGE]: -D parallelism.defalt: the option 'parallelism.defalt' does not exist",
        "  remedy: did you mean 'parallelism.default'?",
    ]


def test_the_configuration_file_that_is_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "penstock.yaml").write_text("parallelism.default: 2\n")
    monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert found({})["configuration file"] == Finding(
        "configuration file", Health.GOOD, str(tmp_path / "penstock.yaml")
    )
    monkeypatch.delenv("PENSTOCK_CONF_DIR")
    unread = found({})["configuration file"]
    assert unread.health == "doubtful"
    assert unread.found == f"{tmp_path / 'penstock.yaml'} is not read"
    assert unread.remedy.endswith(f"PENSTOCK_CONF_DIR={tmp_path}")


def test_a_key_without_effect_is_named() -> None:
    finding = found({"checkpoint.interval": "1s"})["configuration"]
    assert "Did you mean 'execution.checkpointing.interval'?" in finding.found


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        finding = found({"rest.port": str(port)})["rest.port"]
    assert finding.health == "bad"
    assert f"port {port} is not available" in finding.found


def test_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jobmanager.cluster.jvm.java._candidates", lambda: ["/nowhere"])
    [finding] = [f for f in examine(Configuration()) if "no Java" in f.found]
    assert finding.health == "bad"
    assert "JAVA_HOME" in finding.remedy


def test_a_container_that_is_too_small_is_reported_with_the_memory_that_it_needs(tmp_path: Path) -> None:
    findings = list(examine(Configuration({"taskmanager.memory.process.size": "300mb"})))
    [short] = [f for f in findings if f.subject == "memory"]
    assert "would kill a worker" in short.found
    assert "taskmanager.memory.process.size" in short.remedy


def test_a_small_machine_and_a_missing_folder_are_reported(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 300000 kB\nMemAvailable: 200000 kB\n")
    findings = found({"io.tmp.dirs": "/not/there"}, Machine(tmp_path))
    assert findings["machine"].health == "doubtful"
    assert "292 MiB, 195 MiB free" in findings["machine"].found
    assert findings["folder /not/there"].health == "bad"


def test_a_missing_checkpoint_directory_is_reported_with_its_consequences() -> None:
    finding = found({})["checkpoint storage"]
    assert (finding.health, finding.found) == ("doubtful", "none is configured")
