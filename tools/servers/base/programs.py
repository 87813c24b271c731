"""Programs of this machine that run servers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tools.errors import Unsupported


def installed(title: str, programs: Sequence[Path | str], variable: str, package: str) -> Path:
    """Return the first of ``programs`` that exists. A name without a slash is searched on the PATH.

    An environment variable takes precedence. It names the program, or a directory with a program of one of these names.

    Raises ``Unsupported`` with the package of Debian that installs the program if none exists.
    """
    chosen = os.environ.get(variable, "")
    named = [chosen, *(f"{chosen}/{Path(program).name}" for program in programs)] if chosen else []
    for program in (*named, *map(str, programs)):
        found = shutil.which(program)
        if found is not None:
            return Path(found)
    raise Unsupported(
        f"{title} is not installed on this machine",
        remedy=f"run apt-get install {package} (as root on Debian, make test-{title.lower()} does it), or set {variable}",
    )


def java(heap: str, *options: str) -> list[str]:
    """Return the start of a command that runs Java as a small server: fast to start, with few threads.

    ``heap`` is the largest heap, such as ``256m``. Raises ``Unsupported`` if Java is missing.
    """
    found = shutil.which("java")
    if found is None:
        raise Unsupported("java is not on the PATH", remedy="install Java 17")
    return [
        found,
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:ActiveProcessorCount=2",
        "-XX:+PerfDisableSharedMem",
        *options,
    ]
