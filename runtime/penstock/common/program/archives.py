"""Archives of a program. Each archive is unpacked once and cached by content. A folder of links gives a job its
archives under their names.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from penstock.common.errors import PenstockError
from penstock.common.folders.private_folder import cache_folder, filled
from penstock.common.program.user_location import refusal

_ZIP = (".zip", ".whl", ".egg", ".jar")
_TAR = (".tar", ".tar.gz", ".tgz")
_TARGET = "#"
"""Separator in Flink's `python.archives`. The name of the folder follows it."""
_SEPARATOR = ";"
MAX_MEMBERS = 500_000
MAX_BYTES = 32 << 30
"""The largest content of an archive. A large environment with its packages needs a third of this size."""
_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def archive_entry(path: str, target: str | None) -> str:
    """Unpack an archive and return its entry for `python.archives`.

    Raises:
        InvalidJob: the file is missing or is not an archive, or a member or the target leads out of its folder. The
            same error means that the path or the target contains a separator of `python.archives`.
    """
    target = _checked_target(target or os.path.basename(path))
    for name, signs in ((os.path.abspath(path), _SEPARATOR), (target, _SEPARATOR + _TARGET)):
        if any(sign in name for sign in signs):
            raise refusal(
                f"add_python_archive: {name!r} contains a character that python.archives uses as a separator",
                f"use a path without {_SEPARATOR!r}, and a target_dir without {_TARGET!r} or {_SEPARATOR!r}",
            )
    unpacked(Path(path))
    return f"{os.path.abspath(path)}{_TARGET}{target}"


def working_folder(entries: Iterable[str]) -> str:
    """Return a folder that has a link to the content of each archive under its target, or "" without archives.

    All jobs with the same archives share this folder, so no function may use it as its working directory.

    Raises:
        InvalidJob: an error of `archive_entry`, two archives have the same target, or one target is inside another.
    """
    content: dict[str, Path] = {}
    for entry in entries:
        path, _, target = entry.rpartition(_TARGET) if _TARGET in entry else (entry, "", os.path.basename(entry))
        target = _checked_target(target)
        folder = unpacked(Path(path))
        if content.setdefault(target, folder) != folder:
            raise refusal(
                f"add_python_archive: two archives have the target folder {target!r}",
                "set another target_dir for one of them",
            )
    for target in content:
        for above in map(str, PurePosixPath(target).parents):
            if above in content:
                raise refusal(
                    f"add_python_archive: the target folder {target!r} is inside of the target folder {above!r}",
                    "use target folders that are not nested",
                )
    if not content:
        return ""
    names = "\n".join(f"{target} {folder.name}" for target, folder in sorted(content.items()))

    def link(building: Path) -> None:
        for target, folder in content.items():
            place = building / target
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(folder)

    return str(_kept(f"job-{hashlib.sha256(names.encode()).hexdigest()[:24]}", link))


def unpacked(path: Path) -> Path:
    """Return a folder with the content of an archive. All programs share it, so its files are read-only.

    Raises:
        InvalidJob: the file does not exist or is not an archive, or a member leads out of its folder.
    """
    if not path.is_file():
        raise refusal(f"add_python_archive: {path} does not exist")
    _unpacker(path)
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()[:24]

    def fill(folder: Path) -> None:
        unpack(path, folder)
        _make_read_only(folder)

    return _kept(content, fill)


def unpack(path: Path, folder: Path, max_bytes: int | None = None) -> None:
    """Unpack an archive into an existing folder.

    Args:
        max_bytes: maximum size of the content. None means `MAX_BYTES`.

    Raises:
        InvalidJob: the file is not an archive, it is too large, or a member leads out of its folder.
    """
    unpacker = _unpacker(path)
    try:
        unpacker(path, folder, MAX_BYTES if max_bytes is None else max_bytes)
    except PenstockError:
        raise
    except Exception as error:  # each archive format has its own errors
        raise refusal(f"add_python_archive: {path} cannot be unpacked: {error}") from error


def _unpacker(path: Path) -> Callable[[Path, Path, int], None]:
    if path.name.endswith(_ZIP):
        return _unzip
    if path.name.endswith(_TAR):
        return _untar
    known = f"pack it as {', '.join((*_ZIP, *_TAR))}"
    raise refusal(f"add_python_archive: {path} is not an archive of a known type", known)


def _kept(name: str, fill: Callable[[Path], None]) -> Path:
    folder = cache_folder("archives") / name
    if folder.is_dir():
        return folder
    with filled(folder) as building:
        fill(building)
    return folder


def _make_read_only(folder: Path) -> None:
    """Make the files read-only. Folders keep their mode, because the content of a read-only folder cannot be removed."""
    for parent, _, names in os.walk(folder):
        for file in (Path(parent, name) for name in names):
            if not file.is_symlink():
                file.chmod(file.stat().st_mode & ~_WRITE)


def _checked_target(target: str) -> str:
    """Return the target in its normal form."""
    if not _is_inside(target) or not target.isprintable():
        raise refusal(f"add_python_archive: target_dir {target!r} is not below the working directory of functions")
    return str(PurePosixPath(target))


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _unsafe(archive: Path, name: str, reason: str) -> Exception:
    return refusal(
        f"add_python_archive: {name!r} in {archive} {reason}", "create the archive again from inside the folder"
    )


class _Contents:
    """The members of one archive, checked before the first of them is written.

    The declared sizes are a bound: zipfile and tarfile write at most the size in a member's header.
    """

    def __init__(self, archive: Path, folder: Path, max_bytes: int) -> None:
        self._archive = archive
        self._max_bytes = max_bytes
        self._free_bytes = shutil.disk_usage(folder).free
        self._bytes = 0
        self._members = 0

    def add(self, name: str, size: int) -> None:
        """Check the next member.

        Raises:
            InvalidJob: the name leads out of the archive or is not printable, or the archive has too many members or
                bytes.
        """
        if not _is_inside(name) and name != ".":
            raise _unsafe(self._archive, name, "is outside of the archive")
        if not name.isprintable():
            raise _unsafe(self._archive, name, "has characters that cannot be printed")
        self._members += 1
        self._bytes += size
        if size < 0 or self._bytes > self._max_bytes:
            raise refusal(
                f"add_python_archive: {self._archive} is too large: with {name!r} it unpacks to more than {_size(self._max_bytes)}",
                "pack less",
            )
        if self._bytes > self._free_bytes:
            raise refusal(
                f"add_python_archive: {self._archive} is too large: with {name!r} it exceeds the free space of the cache "
                f"({_size(self._free_bytes)})",
                "free space, or set PENSTOCK_CACHE to a folder on a larger disk, or pack less",
            )
        if self._members > MAX_MEMBERS:
            raise refusal(f"add_python_archive: {self._archive} has more than {MAX_MEMBERS} members", "pack less")


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size} bytes"


def _unzip(path: Path, folder: Path, max_bytes: int) -> None:
    contents = _Contents(path, folder, max_bytes)
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            contents.add(member.filename, member.file_size)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind == stat.S_IFLNK:
                raise refusal(
                    f"add_python_archive: {member.filename!r} in {path} is a link",
                    "use a .tar.gz archive for links, or add the files that the links point to",
                )
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _unsafe(path, member.filename, "is neither a file nor a folder")
        for member in members:
            extracted = archive.extract(member, folder)
            mode = (member.external_attr >> 16) & 0o777
            if mode and not member.is_dir():
                os.chmod(extracted, mode | stat.S_IRUSR | stat.S_IWUSR)


def _untar(path: Path, folder: Path, max_bytes: int) -> None:
    contents = _Contents(path, folder, max_bytes)
    with tarfile.open(path) as archive:
        members = []
        for member in archive:
            contents.add(member.name, member.size)
            members.append(member)
        _refuse_paths_through_links(path, members)
        try:
            archive.extractall(folder, filter="data")
        except tarfile.FilterError as error:
            raise _unsafe(path, error.tarinfo.name, "is not a file, or points outside of the archive") from error


def _refuse_paths_through_links(path: Path, members: list[tarfile.TarInfo]) -> None:
    """Refuse members whose path leads through a link of the same archive, wherever that link leads.

    The filter of tarfile resolves each link to check its target. In the past, chains of links have circumvented this
    filter. An archive that a program creates from a folder never has such members.
    """
    links = {str(PurePosixPath(member.name)) for member in members if member.issym()}
    seen: set[str] = set()
    for member in members:
        place = PurePosixPath(member.name)
        ways = [*place.parents]
        if member.islnk():
            source = PurePosixPath(member.linkname)
            ways += [source, *source.parents]
        if any(str(way) in links for way in ways) or (str(place) in links and str(place) in seen):
            raise _unsafe(path, member.name, "passes through a link of the archive")
        seen.add(str(place))
