"""Flink's jars for tests of SQL, from the wheel `apache-flink-libraries`."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from penstock.common.folders.private_folder import cache_folder

VERSION = "2.3.0"


def flink_home() -> Path:
    """Return a folder with the jars of Flink in `lib`. The first call downloads the wheel with pip (330 MB)."""
    given = os.environ.get("FLINK_HOME")
    if given:
        return Path(given)
    folder = cache_folder("flink-wheel")
    home = folder / f"flink-{VERSION}"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            _fetch(folder, home)
    return home


def _fetch(folder: Path, home: Path) -> None:
    download, unpacked = folder / "download", folder / "unpacked"
    for left in (download, unpacked):
        shutil.rmtree(left, ignore_errors=True)
    wheel = f"apache-flink-libraries=={VERSION}"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(download), wheel], check=True
    )
    (found,) = download.glob("*.whl")
    with zipfile.ZipFile(found) as archive:
        archive.extractall(unpacked, [name for name in archive.namelist() if name.startswith("pyflink/lib/")])
    os.replace(unpacked / "pyflink", home)
    for left in (download, unpacked):
        shutil.rmtree(left, ignore_errors=True)
