"""Leave out of the installed packages what a running job never loads, then compile what is left.

Run as ``python slim.py [DROP-LIST]``: patterns relative to site-packages, one a line, ``#`` for comments. Byte code is
written now, because a container with a read-only root file system could not keep it, and every Python worker of every
slot would compile the same modules again.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

FOREIGN = {"x86_64": "*-linux-aarch_64.jar", "aarch64": "*-linux-x86_64.jar"}
"""Jars with native libraries of the architecture that this is not."""


def main(drop_list: Path | None) -> None:
    packages = Path(sysconfig.get_paths()["purelib"])
    patterns = []
    if drop_list is not None:
        lines = (line.strip() for line in drop_list.read_text().splitlines())
        patterns = [line for line in lines if line and not line.startswith("#")]
    if (packages / "pyspark").exists():
        patterns.append(f"pyspark/jars/{FOREIGN[platform.machine()]}")
    before = size(packages)
    unmatched = [pattern for pattern in patterns if not drop(packages, pattern)]
    if unmatched:
        raise SystemExit("nothing matches these lines of the drop list, look at them again: " + ", ".join(unmatched))
    slim = size(packages)
    write_byte_code(packages)
    print(f"packages: {before >> 20} MiB, {slim >> 20} MiB slim, {size(packages) >> 20} MiB with byte code")


def write_byte_code(directory: Path, strip: str = "") -> None:
    """Compile all modules below ``directory``; ``strip`` is left out of the paths that tracebacks show.

    The same sources give the same bytes: found by content and never checked, because modification times are reset when a
    layer is made; in one new process, because what else is alive in it, and how it hashes, show in what is written.
    """
    mode = ["--invalidation-mode", "unchecked-hash"]
    # a module that this Python cannot compile is one that it cannot import either: no reason to fail
    subprocess.run(
        [sys.executable, "-m", "compileall", "-qq", "-f", "-j", "1", *mode, "-s", strip, str(directory)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )


def drop(packages: Path, pattern: str) -> bool:
    """Remove what matches; tell whether anything did."""
    matches = sorted(packages.glob(pattern))
    for match in matches:
        if match.is_dir():
            shutil.rmtree(match)
        else:
            match.unlink()
    return bool(matches)


def size(directory: Path) -> int:
    """Bytes of all files below ``directory``."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if not path.is_dir())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
