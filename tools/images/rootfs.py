"""A Debian root file system as the base of images, made from Debian packages by mmdebstrap.

It replaces ``debian:bookworm-slim``. It has the packages that apt needs to install others, without manual pages and
translations. It uses the package sources of this machine. It is made once and stays in the cache. ``--fresh`` makes
it again, with the latest security updates.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from tools import building
from tools.gobuild import cache_root, file_lock

SUITE = "bookworm"
EPOCH = "315532800"
"""1980-01-01, the date of every file in every layer, so that the same packages give the same bytes. Zip files allow no earlier date."""

SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
HOOKS = Path("/usr/share/mmdebstrap/hooks/maybe-merged-usr")

OPTIONS = (
    "--variant=apt",
    # otherwise apt adds a package that merges /usr afterwards, and Perl for it
    f"--hook-dir={HOOKS}",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    # these files describe the build machine, and a container gets its own
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
    # Java's package puts alternatives of its manual pages there, and fails without the directory
    '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
)


def ensure(*, fresh: bool = False) -> Path:
    """Return the root file system as a tar archive. Make it if it is missing or if ``fresh``.

    Raises ``BuildFailed`` with mmdebstrap's output if the build fails.
    """
    key = hashlib.sha256("\0".join([SUITE, EPOCH, *OPTIONS]).encode()).hexdigest()[:20]
    archive = cache_root() / "rootfs" / f"{SUITE}-{key}.tar"
    with file_lock(archive.with_suffix(".lock")):
        if fresh or not archive.exists():
            _make(archive)
    return archive


def _make(archive: Path) -> None:
    # a machine with other package sources than Debian's suite uses mmdebstrap's default
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    sources = [str(path) for path in SOURCES if path.exists()] if f"VERSION_CODENAME={SUITE}" in release else []
    with tempfile.TemporaryDirectory(prefix=".rootfs-", dir=archive.parent) as scratch:
        # mmdebstrap drops its privileges, and must still reach the directory
        Path(scratch).chmod(0o755)
        made = Path(scratch) / "rootfs.tar"
        building.run(
            ["mmdebstrap", *OPTIONS, SUITE, str(made), *sources[:1]],
            "the root file system could not be built",
            remedy="check that Debian's packages are reachable (apt-get update), or pass another base: --base-image",
            env={"SOURCE_DATE_EPOCH": EPOCH},
        )
        made.rename(archive)
