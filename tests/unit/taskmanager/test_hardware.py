"""The hardware of a machine and of a container's share, as the kernel reports it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.taskmanager.hardware import Machine, this_machine

MEMINFO = "MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   5000 kB\n"
KB = 1024


def machine(root: Path, **files: str) -> Machine:
    """Return a machine. `files` are those of the cgroup."""
    (root / "proc").mkdir()
    (root / "proc" / "meminfo").write_text(MEMINFO)
    cgroup = root / "sys" / "fs" / "cgroup"
    cgroup.mkdir(parents=True)
    for name, text in files.items():
        (cgroup / name.replace("_", ".")).write_text(text + "\n")
    return Machine(root)


@pytest.fixture(autouse=True)
def _of_four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})


def test_a_machine_reports_its_cores_and_memory(tmp_path: Path) -> None:
    found = machine(tmp_path).hardware()
    assert (found.cpu_cores, found.memory, found.memory_free) == (4, 8000 * KB, 5000 * KB)


def test_a_container_reports_its_share(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        cpu_max="150000 100000",
        memory_max=str(2000 * KB),
        memory_current=str(1500 * KB),
        memory_stat=f"anon 7\ninactive_file {300 * KB}",
    ).hardware()
    assert (found.cpu_cores, found.memory, found.memory_free) == (2, 2000 * KB, 800 * KB)


def test_a_container_without_limits_reports_the_machine(tmp_path: Path) -> None:
    found = machine(tmp_path, cpu_max="max 100000", memory_max="max", memory_current="5").hardware()
    assert (found.cpu_cores, found.memory, found.memory_free) == (4, 8000 * KB, 5000 * KB)


def test_a_limit_above_the_machine_has_no_effect(tmp_path: Path) -> None:
    found = machine(tmp_path, cpu_max="900000 100000", memory_max=str(9000 * KB)).hardware()
    assert (found.cpu_cores, found.memory) == (4, 8000 * KB)


def test_unreadable_files_give_unknown_values(tmp_path: Path) -> None:
    found = Machine(tmp_path / "nowhere").hardware()
    assert (found.cpu_cores, found.memory, found.memory_free) == (4, 0, 0)


def test_the_files_are_read_once_a_second(tmp_path: Path) -> None:
    of_test = machine(tmp_path)
    first = of_test.hardware()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 1 kB\n")
    assert of_test.hardware() is first


def test_this_machine_has_cores_and_memory() -> None:
    found = this_machine().hardware()
    assert found.memory > found.memory_free > 0
