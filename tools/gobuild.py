"""Build Go programs once, into a cache that outlives the clone.

Kubernetes, etcd and the S3 server come as source from the Go module proxy, because no registry offers their binaries.
Compiling them takes minutes. The cache stores a program under a key of everything that decides its bytes. These are
the files of the module that pins it, the Go version and the linker flags. A new pin gives a new key. The
programs of an old key can be removed at any time.

Two concurrent callers build a program once: the second caller waits for the first at a lock file. A rename puts a finished
program into the cache, so a killed build leaves nothing that looks finished.
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
"""Lowest CPU priority. A build takes minutes and must not slow down the tests that run at the same time."""


def cache_root() -> Path:
    """Return ``$PENSTOCK_CACHE``, or ``~/.cache/penstock``."""
    configured = os.environ.get("PENSTOCK_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "penstock"


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path``, which is created if missing. The kernel releases the lock when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class GoModule:
    """A directory with ``go.mod`` and ``go.sum``, and the programs that are built from it.

    ``programs`` maps the name of a program in the cache to its Go package. A package is an import path that ``go.mod`` names as
    a tool, or ``./cmd/...`` for a package of this module.
    """

    directory: Path
    programs: Mapping[str, str]
    ldflags: str = "-s -w"
    tags: str = ""
    """Build tags, separated by commas."""

    def bin_dir(self) -> Path:
        """Return the directory of this module's programs for the current Go version. It may not exist yet."""
        digest = hashlib.sha256()
        for part in filter(None, (go_version(), self.ldflags, self.tags)):
            digest.update(part.encode() + b"\0")
        for path in sorted(self.directory.rglob("*")):
            if path.name in {"go.mod", "go.sum"} or path.suffix == ".go":
                digest.update(str(path.relative_to(self.directory)).encode() + b"\0")
                digest.update(path.read_bytes() + b"\0")
        return cache_root() / "bin" / digest.hexdigest()[:20]

    def has(self, names: Iterable[str]) -> bool:
        """Return whether all of these programs are built."""
        return all((self.bin_dir() / name).exists() for name in names)

    def ensure(self, names: Iterable[str] | None = None) -> Path:
        """Build the missing programs among ``names`` (default: all), and return their directory."""
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
                remedy="check that the Go module proxy is reachable (go env GOPROXY), and that the build cache has space",
                cwd=self.directory,
                env={"CGO_ENABLED": "0", "GOWORK": "off"},
            )
            built.rename(target / name)


def module_source(module: str, version: str, checksum: str) -> Path:
    """Return the directory with the files of a module. Go fetches them once into its module cache.

    ``checksum`` is the module's entry in ``go.sum``. Raises ``BuildFailed`` if the module cannot be fetched or has another checksum.
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
            remedy="check that the Go module proxy is reachable (go env GOPROXY)",
        )
    if found.get("Sum") != checksum:
        raise BuildFailed(
            f"{module}@{version} has the checksum {found.get('Sum')} instead of {checksum}",
            remedy="check the pinned version and checksum",
        )
    return Path(found["Dir"])


OLDEST = (1, 21)
"""Oldest usable Go. From this version on, Go fetches the version that a module requires. Older ones refuse (Debian 12 has 1.19)."""


def go_program() -> str:
    """Return the Go on the PATH. If it is missing or too old, return the one that ``setup.sh`` installs beside the Python packages.

    Raises ``BuildFailed`` if neither exists.
    """
    found = shutil.which("go")
    if found is not None and _version_of(found) < OLDEST:
        found = None
    package = importlib.util.find_spec("go") if found is None else None
    if package is not None and package.origin is not None:
        found = shutil.which("go", path=Path(package.origin).parent / "bin")
    if found is None:
        raise BuildFailed("go is not on the PATH", remedy="install Go 1.26 or newer (https://go.dev/dl)")
    return found


def _version_of(program: str) -> tuple[int, ...]:
    """Return the version, such as (1, 26). A development version or an unknown version counts as new enough."""
    command = [program, "env", "GOVERSION"]
    done = subprocess.run(
        command, cwd=tempfile.gettempdir(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    )
    numbers = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return OLDEST if numbers is None else (int(numbers[1]), int(numbers[2]))


def go_version() -> str:
    """Return the version of the Go toolchain, such as ``go1.26.8``."""
    return subprocess.run(
        [go_program(), "env", "GOVERSION"], cwd=tempfile.gettempdir(), stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
