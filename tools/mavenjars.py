"""Jars of Maven artifacts, fetched once into a cache that outlives the clone, each held against its checksum. So are archives of jars.

A folder with a ``pom.xml`` names what is wanted, a ``jars.sha256`` beside it (as ``sha256sum`` writes it) every jar that
this comes to. What Maven fetched and the list do not agree on is refused, whichever of the two has it.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools import building
from tools.errors import BuildFailed
from tools.gobuild import cache_root, file_lock


@dataclass(frozen=True)
class MavenJars:
    """``directory`` has ``pom.xml`` and ``jars.sha256``."""

    directory: Path
    goal: str = "copy-dependencies"
    """Of Maven's dependency plugin: ``copy`` takes what the plugin's configuration names, without what that depends on."""

    def folder(self) -> Path:
        """Where the jars of this list are kept; it may not exist yet."""
        digest = hashlib.sha256(self._list().encode()).hexdigest()[:20]
        return cache_root() / "jars" / digest

    def ensure(self) -> Path:
        """Fetch them if they were not before; return the folder that holds them.

        Raises ``BuildFailed`` when there is no Maven, nothing can be fetched, or a jar is not the one that is pinned.
        """
        target = self.folder()
        if target.exists():
            return target
        with file_lock(target.with_suffix(".lock")):
            if not target.exists():
                self._fetch(target)
        return target

    def _list(self) -> str:
        return (self.directory / "jars.sha256").read_text()

    def pinned(self) -> dict[str, str]:
        """Name of the jar -> SHA-256."""
        return {name: digest for digest, name in (line.split() for line in self._list().splitlines())}

    def _fetch(self, target: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise BuildFailed("there is no mvn on the PATH", remedy="install Maven (apt-get install maven)")
        print(f"fetching {len(self.pinned())} jars of {self.directory.name} (once; into {target})", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix=".jars-", dir=target.parent) as scratch:
            shutil.copy(self.directory / "pom.xml", scratch)
            building.run(
                [maven, "-q", "-B", f"dependency:{self.goal}", "-DoutputDirectory=jars"],
                f"the jars of {self.directory / 'pom.xml'} could not be fetched",
                remedy="does Maven reach its repository (its settings.xml, a proxy)?",
                cwd=scratch,
            )
            self.check(Path(scratch) / "jars")
            (Path(scratch) / "jars").rename(target)

    def check(self, folder: Path) -> None:
        """Hold the jars of a folder against the list. Raises ``BuildFailed``."""
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        pinned = self.pinned()
        wrong = sorted(name for name in found.keys() | pinned.keys() if found.get(name) != pinned.get(name))
        if wrong:
            raise BuildFailed(
                f"jars that are not those of {self.directory / 'jars.sha256'}: {', '.join(wrong)}",
                remedy="after a change of pom.xml write the list anew (sha256sum *.jar); without one do not use them",
            )
