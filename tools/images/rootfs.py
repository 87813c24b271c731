"""A Debian root file system for images to start from, made of Debian packages by mmdebstrap.

It takes the place of ``debian:bookworm-slim``: the packages that apt needs to add others, without manual pages and
translations. Packages come from where this machine's own come from. It is made once into the cache and is as old as it
is: ``--fresh`` makes it anew, with the security updates since.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from tools import building
from tools.gobuild import cache_root, file_lock

SUITE = "bookworm"
EPOCH = "315532800"
"""1980-01-01, the date of every file in every layer: the same packages give the same bytes. Zip files know none before."""

SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
HOOKS = Path("/usr/share/mmdebstrap/hooks/maybe-merged-usr")

OPTIONS = (
    "--variant=apt",
    # else a package is pulled in that merges /usr afterwards, and Perl for it
    f"--hook-dir={HOOKS}",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    # of the machine it is made on; a container is given its own
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
    # Java's package puts alternatives of its manual pages there and fails without it
    '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
)


def ensure(*, fresh: bool = False) -> Path:
    """The root file system as a tar archive; made if there is none, or anew if ``fresh``.

    Raises ``BuildFailed`` with mmdebstrap's words when it cannot be made.
    """
    key = hashlib.sha256("\0".join([SUITE, EPOCH, *OPTIONS]).encode()).hexdigest()[:20]
    archive = cache_root() / "rootfs" / f"{SUITE}-{key}.tar"
    with file_lock(archive.with_suffix(".lock")):
        if fresh or not archive.exists():
            _make(archive)
    return archive


def _make(archive: Path) -> None:
    # a machine with other sources than Debian's own suite gets mmdebstrap's default
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    sources = [str(path) for path in SOURCES if path.exists()] if f"VERSION_CODENAME={SUITE}" in release else []
    with tempfile.TemporaryDirectory(prefix=".rootfs-", dir=archive.parent) as scratch:
        # mmdebstrap gives up its rights and must still get there
        Path(scratch).chmod(0o755)
        made = Path(scratch) / "rootfs.tar"
        building.run(
            ["mmdebstrap", *OPTIONS, SUITE, str(made), *sources[:1]],
            "the root file system could not be made",
            remedy="are Debian's packages reachable (apt-get update)? Or give another base: --base-image",
            env={"SOURCE_DATE_EPOCH": EPOCH},
        )
        made.rename(archive)
