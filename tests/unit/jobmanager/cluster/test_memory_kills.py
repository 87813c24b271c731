"""The kill counter of a container's control group, in both versions, and on machines without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills

MIB = 2**20


def v1(root: Path, own: Path, kills: int, limit: str, group: str = "") -> None:
    folder = root / "memory" / group
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    own.write_text("5:memory:/kubepods/burstable/pod1/c1\n1:cpu,cpuacct:/kubepods\n0::/\n")


def v2(root: Path, own: Path, kills: int, limit: str, group: str = "") -> None:
    folder = root / group
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.events").write_text(f"low 0\nhigh 0\nmax 7\noom 9\noom_kill {kills}\noom_group_kill 0\n")
    (folder / "memory.max").write_text(f"{limit}\n")
    own.write_text(f"0::/{group}\n")


@pytest.mark.parametrize("write", [v1, v2])
def test_a_kill_is_counted_once(tmp_path: Path, write: object) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    write(root, own, 4, str(512 * MIB))  # type: ignore[operator]
    kills = MemoryKills(str(root), str(own))
    assert (kills.new(), kills.limit) == (0, 512 * MIB), "what was killed before says nothing of this process"
    write(root, own, 6, str(512 * MIB))  # type: ignore[operator]
    assert (kills.new(), kills.new()) == (2, 0)


@pytest.mark.parametrize(("write", "none"), [(v1, "9223372036854771712"), (v2, "max")])
def test_a_container_without_a_limit_reports_none(tmp_path: Path, write: object, none: str) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    write(root, own, 0, none)  # type: ignore[operator]
    assert MemoryKills(str(root), str(own)).limit == 0


@pytest.mark.parametrize(("write", "group"), [(v1, "kubepods/burstable/pod1/c1"), (v2, "user.slice/job")])
def test_a_group_below_the_mount_is_the_group_of_the_process(tmp_path: Path, write: object, group: str) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    write(root, own, 9, str(999 * MIB))  # type: ignore[operator]
    write(root, own, 0, str(100 * MIB), group)  # type: ignore[operator]
    kills = MemoryKills(str(root), str(own))
    assert kills.limit == 100 * MIB
    write(root, own, 1, str(100 * MIB), group)  # type: ignore[operator]
    assert kills.new() == 1


def test_a_machine_without_the_counter_reports_no_kills(tmp_path: Path) -> None:
    kills = MemoryKills(str(tmp_path / "none"), str(tmp_path / "nothing"))
    assert (kills.new(), kills.limit) == (0, 0)
