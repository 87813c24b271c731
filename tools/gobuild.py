"""Build Go programs once, into a cache that outlives the clone.

Kubernetes, etcd and the S3 server come from the Go module proxy as source: there is no registry to pull them from,
and compiling them takes minutes. A program is therefore stored under a key made of everything that decides its
bytes: the files of the module that pins it, the Go version and the linker flags. A new pin is a new key; an
old key's programs can be removed at any time.

Two callers at once build once: the second waits for the first at a lock file. A program appears in the cache by a
rename, so a build that is killed leaves nothing that looks finished.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools import building
from tools.errors import BuildFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NICENESS = 19
"""A build takes minutes and must not slow the tests that run beside it."""


def cache_root() -> Path:
    """``$PENSTOCK_CACHE``, or ``~/.cache/penstock``."""
    configured = os.environ.get("PENSTOCK_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "penstock"


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` (made if missing); a holder that dies releases it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class GoModule:
    """A directory with ``go.mod`` and ``go.sum`` and the programs that are built from it.

    ``programs`` maps the name a program gets in the cache to the package it is built from: an import path that
    ``go.mod`` names as a tool, or ``./cmd/...`` for one of the module's own.
    """

    directory: Path
    programs: Mapping[str, str]
    ldflags: str = "-s -w"
    tags: str = ""
    """What is built in or left out, by commas."""

    def bin_dir(self) -> Path:
        """The directory of this module's programs for this Go version; it may not exist yet."""
        digest = hashlib.sha256()
        for part in filter(None, (go_version(), self.ldflags, self.tags)):
            digest.update(part.encode() + b"\0")
        for path in sorted(self.directory.rglob("*")):
            if path.name in {"go.mod", "go.sum"} or path.suffix == ".go":
                digest.update(str(path.relative_to(self.directory)).encode() + b"\0")
                digest.update(path.read_bytes() + b"\0")
        return cache_root() / "bin" / digest.hexdigest()[:20]

    def has(self, names: Iterable[str]) -> bool:
        """Whether all of these programs are built."""
        return all((self.bin_dir() / name).exists() for name in names)

    def ensure(self, names: Iterable[str] | None = None) -> Path:
        """Build what is missing of ``names`` (all programs by default); return the directory that holds them."""
        target = self.bin_dir()
        wanted = list(self.programs if names is None else names)
        if self.has(wanted):
            return target
        with file_lock(target.parent / f"{target.name}.lock"):
            for name in wanted:
                if not (target / name).exists():
                    self._build(name, target)
        return target

    def _build(self, name: str, target: Path) -> None:
        package = self.programs[name]
        print(f"building {name} from {package} (once; into {target})", file=sys.stderr, flush=True)
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target.parent) as scratch:
            built = Path(scratch) / name
            command = [go_program(), "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", self.ldflags]
            command += ["-tags", self.tags] if self.tags else []
            building.run(
                ["nice", "-n", str(NICENESS), *command, "-o", str(built), package],
                f"{name} could not be built from {package} in {self.directory}",
                remedy="is the Go module proxy reachable (go env GOPROXY)? Is there space for the build cache?",
                cwd=self.directory,
                env={"CGO_ENABLED": "0", "GOWORK": "off"},
            )
            built.rename(target / name)


def module_source(module: str, version: str, checksum: str) -> Path:
    """The directory with the files of a module, fetched once into Go's own cache.

    ``checksum`` is what ``go.sum`` would say of it. Raises ``BuildFailed`` when it cannot be had, or is another one.
    """
    done = subprocess.run(
        [go_program(), "mod", "download", "-json", f"{module}@{version}"],
        cwd=tempfile.gettempdir(),
        env={**os.environ, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    if done.returncode or found.get("Error"):
        raise BuildFailed(
            f"{module}@{version} could not be fetched: {found.get('Error') or done.stderr[-3000:]}",
            remedy="is the Go module proxy reachable (go env GOPROXY)?",
        )
    if found.get("Sum") != checksum:
        raise BuildFailed(
            f"{module}@{version} has the checksum {found.get('Sum')} and not {checksum}", remedy="look at the pin"
        )
    return Path(found["Dir"])


OLDEST = (1, 21)
"""Go from here on fetches the version that a module asks for; what is older refuses (Debian 12 has 1.19)."""


def go_program() -> str:
    """The Go on the PATH, or the one that ``setup.sh`` puts beside the Python packages where there is none that will do.

    Raises ``BuildFailed`` when there is neither.
    """
    found = shutil.which("go")
    if found is not None and _version_of(found) < OLDEST:
        found = None
    package = importlib.util.find_spec("go") if found is None else None
    if package is not None and package.origin is not None:
        found = shutil.which("go", path=Path(package.origin).parent / "bin")
    if found is None:
        raise BuildFailed("there is no Go toolchain on the PATH", remedy="install Go 1.26 or newer (https://go.dev/dl)")
    return found


def _version_of(program: str) -> tuple[int, ...]:
    """Such as (1, 26); of a development version, or where it cannot be told, one that is new enough."""
    command = [program, "env", "GOVERSION"]
    done = subprocess.run(
        command, cwd=tempfile.gettempdir(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    )
    numbers = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return OLDEST if numbers is None else (int(numbers[1]), int(numbers[2]))


def go_version() -> str:
    """The version of the Go toolchain, such as ``go1.26.8``."""
    return subprocess.run(
        [go_program(), "env", "GOVERSION"], cwd=tempfile.gettempdir(), stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
