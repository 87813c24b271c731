"""Remove the files of installed packages that a running job never loads, then compile the rest.

Run as ``python slim.py [DROP-LIST]``. The list has one pattern a line, relative to site-packages, and ``#`` for comments.
Byte code is written now, because a container with a read-only root file system cannot save it. Every Python worker of every
slot would otherwise compile the same modules again.
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
"""The jars with native libraries of another architecture."""


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
        raise SystemExit("these lines of the drop list match nothing; correct or remove them: " + ", ".join(unmatched))
    slim = size(packages)
    write_byte_code(packages)
    print(f"packages: {before >> 20} MiB, {slim >> 20} MiB slim, {size(packages) >> 20} MiB with byte code")


def write_byte_code(directory: Path, strip: str = "") -> None:
    """Compile all modules below ``directory``. ``strip`` is removed from the paths in tracebacks.

    The same sources give the same bytes. Python finds the byte code by content and never checks it, because a new layer resets
    modification times. The compiler runs in a new process, because other live objects and the hash seed affect the output.
    """
    mode = ["--invalidation-mode", "unchecked-hash"]
    # a module that this Python cannot compile cannot be imported either, so this is not a reason to fail
    subprocess.run(
        [sys.executable, "-m", "compileall", "-qq", "-f", "-j", "1", *mode, "-s", strip, str(directory)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )


def drop(packages: Path, pattern: str) -> bool:
    """Remove the matching files, and return whether any existed."""
    matches = sorted(packages.glob(pattern))
    for match in matches:
        if match.is_dir():
            shutil.rmtree(match)
        else:
            match.unlink()
    return bool(matches)


def size(directory: Path) -> int:
    """Return the bytes of all files below ``directory``."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if not path.is_dir())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
