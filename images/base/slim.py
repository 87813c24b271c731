"""Leave out of the installed packages what a running job never loads, then compile what is left.

Run as ``python slim.py [DROP-LIST]``: patterns relative to site-packages, one a line, ``#`` for comments. Byte code is
written now, because a container with a read-only root file system could not keep it, and every Python worker of every
slot would compile the same modules again.
"""

from __future__ import annotations

import compileall
import platform
import shutil
import sys
import sysconfig
from pathlib import Path
from py_compile import PycInvalidationMode

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
    # by content and never checked: modification times are reset when a layer is made
    compiled = compileall.compile_dir(
        packages, quiet=2, workers=0, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
    )
    print(
        f"packages: {before >> 20} MiB, {slim >> 20} MiB slim, {size(packages) >> 20} MiB with byte code ({compiled=})"
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
