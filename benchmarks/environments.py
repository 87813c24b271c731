"""A virtual environment per peer, and one for plots, under `~/.cache/penstock/peers/<name>`. Each is created at its first use."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = {
    "bytewax": ["bytewax==0.21.1", "confluent-kafka==2.16.1", "orjson==3.*"],
    "pathway": ["pathway==0.33.0"],
    "flink": ["apache-flink==2.3.0", "orjson==3.*", "setuptools<81"],
    "quix": ["quixstreams==3.28.1"],
    "plots": ["matplotlib==3.11.*"],
    "spark": ["pyspark==4.3.0", "pandas==2.*", "pyarrow==22.*", "protobuf==6.*"],
}
_READY = ".ready"
"""A file with the installed packages, one a line. If the requirements differ from it, the missing packages are installed."""


def cache() -> Path:
    """Return the cache folder of environments and inputs."""
    return Path(os.environ.get("PENSTOCK_CACHE", Path.home() / ".cache" / "penstock"))


def python_of(peer: str) -> Path:
    """Return the peer's Python interpreter. Penstock's is the current one.

    Raises:
        subprocess.CalledProcessError: the peer's packages cannot be installed.
    """
    if peer not in REQUIREMENTS:
        return Path(sys.executable)
    home = cache() / "peers" / peer
    python, ready = home / "bin" / "python", home / _READY
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists() or ready.read_text().splitlines() != REQUIREMENTS[peer]:
            if not python.exists():
                venv.create(home, with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *REQUIREMENTS[peer]], check=True, stdout=sys.stderr)
            ready.write_text("\n".join(REQUIREMENTS[peer]))
    return python


def site_packages(peer: str) -> Path:
    """Return the folder of the peer's packages. PyFlink's embedded interpreter does not find them without it."""
    return next((cache() / "peers" / peer / "lib").glob("python3*/site-packages"))
