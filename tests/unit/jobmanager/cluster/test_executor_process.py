"""The start of an executor's process. A sleeping process replaces the executor."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from penstock.common.folders.owned_folder import OwnedFolder
from penstock.jobmanager.cluster.credentials import Credentials
from penstock.jobmanager.cluster.executor import executor_process
from penstock.jobmanager.cluster.executor.executor_process import Launch, start_executor

LAUNCH = Launch("7", "spark://driver", "app", [], "", {}, {})


class TestFolder:
    def start(self, work_dir: Path) -> tuple[subprocess.Popen[bytes], OwnedFolder]:
        return start_executor(
            LAUNCH, slots=1, host="", work_dir=str(work_dir), heap_mb=1, credentials=cast(Credentials, None)
        )

    @pytest.fixture(autouse=True)
    def command(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        command = ["sleep", "60"]

        def made(*_: Any, **__: Any) -> tuple[list[str], dict[str, str]]:
            return command, dict(os.environ)

        monkeypatch.setattr(executor_process, "executor_command", made)
        monkeypatch.setattr("shutil.which", lambda name: None)
        return command

    def test_other_users_cannot_read_the_folder_of_an_executor(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            process, folder = self.start(tmp_path)
        finally:
            os.umask(before)
        assert os.path.samefile(f"/proc/{process.pid}/cwd", folder.path)
        assert stat.S_IMODE(os.stat(folder.path).st_mode) == 0o700
        process.kill()
        process.wait()
        folder.remove()
        assert not os.path.exists(folder.path)

    def test_the_folder_of_an_executor_whose_taskmanager_was_killed_is_removed_by_the_next(
        self, tmp_path: Path
    ) -> None:
        (_, left), (_, used) = started = [self.start(tmp_path), self.start(tmp_path)]
        os.close(left._lock)  # as the system does when it kills the process
        started.append(self.start(tmp_path))
        assert not os.path.exists(left.path)
        assert os.path.exists(used.path)
        for process, _ in started:
            process.kill()
            process.wait()

    def test_the_folder_of_an_executor_that_cannot_be_started_is_removed(
        self, tmp_path: Path, command: list[str]
    ) -> None:
        command[0] = str(tmp_path / "no-such-program")
        with pytest.raises(FileNotFoundError):
            self.start(tmp_path)
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def short_path() -> Iterator[str]:
    """Create a folder for sockets with a short path. The name of a socket has at most about 100 characters."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


def test_python_warms_up_while_the_jvm_starts(short_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the JVM by a process that waits for the daemon.

    It is the executor itself, so its end also ends the daemon.
    """
    looks = 'test -n "$PENSTOCK_WARM_DAEMON" || exit 1; while [ ! -S "$PENSTOCK_WARM_DAEMON" ]; do sleep 0.05; done; echo it is there'
    command = ["sh", "-c", looks], dict(os.environ)
    monkeypatch.setattr(executor_process, "executor_command", lambda *_, **__: command)
    launch = msgspec.structs.replace(LAUNCH, python=sys.executable)
    process, folder = start_executor(
        launch, slots=1, host="", work_dir=short_path, heap_mb=1, credentials=cast(Credentials, None)
    )
    assert os.getpgid(process.pid) == process.pid
    assert process.stdout is not None
    assert process.stdout.read() == b"it is there\n"  # and then the end of the output: no process has it open
    assert process.wait() == 0
    folder.remove()
