"""A build step: run a program and wait until it ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tools.errors import BuildFailed

_SHOWN = 3000
_NOTHING: Mapping[str, str] = MappingProxyType({})


def run(
    command: Sequence[str],
    failure: str,
    *,
    remedy: str,
    cwd: Path | str | None = None,
    env: Mapping[str, str] = _NOTHING,
) -> str:
    """Run a program and return its output, including its errors.

    ``env`` adds to and overrides this process's environment.

    Raises ``BuildFailed`` with ``failure`` and the end of the output if the exit code is not 0.
    """
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed(f"{failure}:\n{done.stdout[-_SHOWN:]}", remedy=remedy)
    return done.stdout
