"""A server that outlives the command that starts it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run(server: str, verb: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "tools.servers", server, verb, "--state-dir", str(folder), *options]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def started(server: str, folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """Start a server, and check the command's output. Yield the exported variables, and stop the server at the end."""
    assert run(server, "status", folder).returncode == 1
    try:
        first = run(server, "start", folder, *options)
        assert first.returncode == 0, first.stderr
        assert run(server, "start", folder, *options).stdout == first.stdout, (
            "a second start finds the first one's server"
        )
        assert run(server, "status", folder).stdout == first.stdout
        yield dict(line.removeprefix("export ").split("=", 1) for line in first.stdout.splitlines())
    finally:
        assert run(server, "stop", folder).returncode == 0
    assert run(server, "status", folder).returncode == 1
