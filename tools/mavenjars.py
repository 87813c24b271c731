"""Maven jars, and archives of jars, with pinned checksums. They are fetched once into a cache that outlives the clone.

A folder has a ``pom.xml`` that names the artifacts, and a ``jars.sha256`` that lists every resulting jar in the format of
``sha256sum``. If the list and the fetched files differ in any way, the fetch fails.
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
    """The artifacts of one folder. ``directory`` has ``pom.xml`` and ``jars.sha256``."""

    directory: Path
    goal: str = "copy-dependencies"
    """A goal of Maven's dependency plugin. ``copy`` fetches the artifacts that the plugin's configuration names, without dependencies."""

    def folder(self) -> Path:
        """Return the folder in the cache for the jars of this list. It may not exist yet."""
        digest = hashlib.sha256(self._list().encode()).hexdigest()[:20]
        return cache_root() / "jars" / digest

    def ensure(self) -> Path:
        """Fetch the jars if they are missing, and return their folder.

        Raises ``BuildFailed`` if Maven is missing, a jar cannot be fetched, or a jar differs from its pinned checksum.
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
        """Return the SHA-256 of each jar, by the jar's name."""
        return {name: digest for digest, name in (line.split() for line in self._list().splitlines())}

    def _fetch(self, target: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise BuildFailed("mvn is not on the PATH", remedy="install Maven (apt-get install maven)")
        print(f"fetching {len(self.pinned())} jars of {self.directory.name} (once; into {target})", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix=".jars-", dir=target.parent) as scratch:
            shutil.copy(self.directory / "pom.xml", scratch)
            building.run(
                [maven, "-q", "-B", f"dependency:{self.goal}", "-DoutputDirectory=jars"],
                f"the jars of {self.directory / 'pom.xml'} could not be fetched",
                remedy="check that Maven reaches its repository (its settings.xml, a proxy)",
                cwd=scratch,
            )
            self.check(Path(scratch) / "jars")
            (Path(scratch) / "jars").rename(target)

    def check(self, folder: Path) -> None:
        """Compare the jars of a folder with the list. Raise ``BuildFailed`` if they differ."""
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        pinned = self.pinned()
        wrong = sorted(name for name in found.keys() | pinned.keys() if found.get(name) != pinned.get(name))
        if wrong:
            raise BuildFailed(
                f"these jars differ from {self.directory / 'jars.sha256'}: {', '.join(wrong)}",
                remedy="if pom.xml has changed, write the list again (sha256sum *.jar); otherwise do not use these jars",
            )
