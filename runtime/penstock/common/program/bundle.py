"""The bundle of a program that a client sends to a cluster: its code and the list of its packages, in one archive.

A bundle is one of these files:

- a module (`.py`), or SQL statements (`.sql`)
- an archive (`.zip`, `.tar.gz`, …) of modules. At its top it may have `requirements.txt`, or `pyproject.toml` with dependencies, and a
  folder `wheels` with packages, so that the installation needs no network.
- a wheel. Its dependencies are installed.

Each machine unpacks a bundle and installs its packages once, into a folder with the name of its digest. The packages take precedence over
those of the machine, so jobs of one cluster can use different versions of a package. Only the packages that the engine itself uses in the
same process (`SHARED`) cannot be replaced.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.folders.private_folder import cache_folder, filled
from penstock.common.program.archives import unpack

MAX_BYTES = 512 << 20
"""Maximum size of a bundle."""
MAX_NAME = 200
"""Maximum length of the file name of a bundle, in bytes."""
MAX_UNPACKED = 4 << 30
"""Maximum size of the content of a bundle. Data of a program belongs into storage."""
INSTALL_S = 900.0
"""Maximum time of an installation of packages, in seconds."""
SHARED = ("numpy", "pyarrow", "msgspec", "pyspark", "py4j", "fsspec", "penstock-streaming")
"""Packages that a process of the engine has already loaded when it loads a program."""
FILE, CODE, PACKAGES, WHEELS = "bundle", "code", "site-packages", "wheels"
SUFFIXES = (".py", ".sql", ".zip", ".whl", ".egg", ".tar", ".tar.gz", ".tgz")
_FORMAT = 1
"""Version of the layout of a folder. Packages also depend on the version of Python."""
_DONE = ".complete"
_KEPT = 20
"""Number of bundles that are kept unpacked. The bundle that was not used for the longest time is removed first."""
_MAX_LINES = 4
_IN_USE: dict[Path, IO[str]] = {}
"""Locks that this process holds on its bundles until it ends, so that no other process removes them."""


class Bundle(msgspec.Struct, frozen=True):
    """Bundle that a JobManager has prepared."""

    name: str
    digest: str
    folder: str
    """Folder of the bundle on the JobManager's machine. Entries of the search path begin with this folder."""

    def path_here(self, path: list[str], content: Callable[[], bytes]) -> list[str]:
        """Convert a search path of the JobManager's machine to a search path of this machine. Fetch the bundle first if
        necessary.
        """
        here = str(prepared(self.name, self.digest, content))
        return [here + entry.removeprefix(self.folder) if entry.startswith(self.folder) else entry for entry in path]


def digest_of(content: bytes) -> str:
    """Return the digest that identifies a bundle."""
    return hashlib.sha256(content).hexdigest()


def check_name(name: str) -> str:
    """Return the file name of a bundle.

    Raises:
        InvalidJob: the name is not that of a module, an archive or a wheel.
    """
    is_file_name = os.path.basename(name) == name and name.isprintable() and not name.startswith(".")
    if len(name.encode(errors="replace")) > MAX_NAME:
        raise InvalidJob(
            f"the file name {name[:40]}… of the program has more than {MAX_NAME} bytes", remedy="use a shorter name"
        )
    if not is_file_name or not name.endswith(SUFFIXES):
        raise InvalidJob(
            f"{name!r} is not a program",
            remedy=f"send a file whose name ends with {', '.join(SUFFIXES)}, without a folder",
        )
    return name


def prepared(name: str, digest: str, content: Callable[[], bytes], max_unpacked: int | None = None) -> Path:
    """Return the folder of a bundle. It contains the bundle (`bundle`), its code (`code`) and its packages
    (`site-packages`). The first call on this machine fills the folder.

    Args:
        name: file name of the bundle.
        content: function that returns the bundle. It is called only if the folder must be filled.
        max_unpacked: maximum size of the content of an archive in bytes. None means `MAX_UNPACKED`.

    Raises:
        InvalidJob: the bundle cannot be unpacked, its packages cannot be installed, or they replace a package of `SHARED`.
    """
    base = cache_folder(f"bundles-{_FORMAT}-{sys.implementation.cache_tag}")
    folder = base / digest
    if not (folder / _DONE).exists():
        with _locked(base / f"{digest}.lock"):
            if not (folder / _DONE).exists():
                shutil.rmtree(folder, ignore_errors=True)
                _fill(folder, check_name(name), content(), MAX_UNPACKED if max_unpacked is None else max_unpacked)
                _forget_others(base, folder)
    if folder not in _IN_USE:
        file = (folder / _DONE).open()
        fcntl.flock(file, fcntl.LOCK_SH)
        _IN_USE[folder] = file
    os.utime(folder / _DONE)
    return folder


def import_folders(folder: Path) -> list[str]:
    """Return the entries of the import path for a prepared bundle."""
    return [str(folder / CODE), str(folder / PACKAGES)]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock of this machine, so that only one of several processes installs the packages."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fill(folder: Path, name: str, content: bytes, max_unpacked: int) -> None:
    with filled(folder) as building:
        code, packages = building / CODE, building / PACKAGES
        for made in (code, packages):
            made.mkdir()
        file = building / name
        file.write_bytes(content)
        if name.endswith((".py", ".sql")):
            shutil.copy(file, code / name)
        elif name.endswith(".whl"):
            _install([str(file)], packages, None)
        else:
            _unpack(file, code, max_unpacked)
            wanted = _requirements(code)
            if wanted:
                wheels = code / WHEELS
                _install(wanted, packages, wheels if wheels.is_dir() else None)
        file.rename(building / FILE)
        (building / _DONE).touch()


def _unpack(file: Path, code: Path, max_unpacked: int) -> None:
    """Unpack an archive. If it has only one folder at its top, move the content of this folder up."""
    try:
        unpack(file, code, max_unpacked)
    except PenstockError as error:
        text = error.message.replace("add_python_archive: ", "").replace(str(file), file.name)
        raise InvalidJob(text, remedy=error.remedy) from error
    entries = list(code.iterdir())
    if len(entries) == 1 and entries[0].is_dir() and not (entries[0] / "__init__.py").exists():
        moved = code.with_name("moved")
        entries[0].rename(moved)
        code.rmdir()
        moved.rename(code)


def _requirements(code: Path) -> list[str]:
    """Return the arguments of pip for the packages that the program needs."""
    if (code / "requirements.txt").is_file():
        return ["-r", str(code / "requirements.txt")]
    for lock in ("pylock.toml", "uv.lock"):
        if (code / lock).is_file():
            raise InvalidJob(
                f"the archive has {lock} but no requirements.txt",
                remedy="add the locked packages as requirements.txt: uv export --no-dev --no-emit-project -o requirements.txt",
            )
    project = code / "pyproject.toml"
    if not project.is_file():
        return []
    try:
        found = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("dependencies", [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidJob(f"pyproject.toml cannot be read: {error}", remedy="correct the file") from None
    names = [str(line) for line in found]
    return [line for line in names if _canonical(re.split(r"[^\w.-]", line)[0]) != "penstock-streaming"]


def _install(wanted: list[str], packages: Path, wheels: Path | None) -> None:
    constraints = packages.with_name("constraints.txt")
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in _shared_versions().items()))
    source = [] if wheels is None else ["--no-index", "--find-links", str(wheels)]
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--target", str(packages), "-c", str(constraints), *wanted, *source),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_S)
        lines = [] if done.returncode == 0 else done.stderr.splitlines()
    except subprocess.TimeoutExpired:
        lines = [f"the installation did not end within {INSTALL_S:.0f} s"]
    constraints.unlink()
    shown = [line.strip() for line in lines if line.strip() and not line.startswith(("WARNING", "[notice]"))]
    if lines:
        versions = ", ".join(f"{name} {version}" for name, version in _shared_versions().items())
        raise InvalidJob(
            f"the packages of the program cannot be installed: {'; '.join(shown[-_MAX_LINES:]).replace(str(packages.parent) + os.sep, '')}",
            remedy=f"check the names and versions, or add the packages to the folder {WHEELS} of the archive. The versions of "
            f"these packages are fixed: {versions}",
        )
    _remove_shared(packages)


def _shared_versions() -> dict[str, str]:
    """Return the installed versions of the packages that a program cannot replace."""
    found = {}
    for name in SHARED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _remove_shared(packages: Path) -> None:
    """Remove copies of the engine's packages. pip has installed the same versions again, because it does not look
    outside the folder.
    """
    for distribution in importlib.metadata.distributions(path=[str(packages)]):
        if _canonical(distribution.name) in SHARED:
            for file in distribution.files or ():
                Path(str(distribution.locate_file(file))).unlink(missing_ok=True)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _forget_others(base: Path, kept: Path) -> None:
    """Remove the bundles that were not used for the longest time, except those that a process uses now."""
    found = [(file.stat().st_mtime, file.parent) for file in base.glob(f"*/{_DONE}") if file.parent != kept]
    for _, folder in sorted(found, reverse=True)[_KEPT:]:
        with suppress(OSError), (folder / _DONE).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
