"""Archives of a program: unpacked once and kept by content, and a folder of links that has a job's archives under their names."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from penstock.common.errors import PenstockError
from penstock.common.folders.private_folder import cache_folder
from penstock.common.program.user_location import refusal

_ZIP = (".zip", ".whl", ".egg", ".jar")
_TAR = (".tar", ".tar.gz", ".tgz")
_TARGET = "#"
"""As Flink writes an archive in `python.archives`: what is behind it is the name of the folder."""
_SEPARATOR = ";"
_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def archive_entry(path: str, target: str | None) -> str:
    """An archive as `python.archives` has it, unpacked already.

    Raises:
        InvalidJob: there is no such file, it is no archive, something in it leads out of its folder, or the target does; or one
            has a name that the option cannot hold.
    """
    target = _checked_target(target or os.path.basename(path))
    for name, signs in ((os.path.abspath(path), _SEPARATOR), (target, _SEPARATOR + _TARGET)):
        if any(sign in name for sign in signs):
            raise refusal(
                f"add_python_archive: {name!r} has a sign that python.archives has for itself",
                f"give the archive a path without {_SEPARATOR!r}, and a target_dir without {_TARGET!r} or {_SEPARATOR!r}",
            )
    unpacked(Path(path))
    return f"{os.path.abspath(path)}{_TARGET}{target}"


def working_folder(entries: Iterable[str]) -> str:
    """A folder that has a link to the content of each archive under its target; "" if there are none. The same archives have the same
    folder, so that nobody works in it.

    Raises:
        InvalidJob: as `archive_entry`, or two archives have one target, or one is within another.
    """
    content: dict[str, Path] = {}
    for entry in entries:
        path, _, target = entry.rpartition(_TARGET) if _TARGET in entry else (entry, "", os.path.basename(entry))
        target = _checked_target(target)
        folder = unpacked(Path(path))
        if content.setdefault(target, folder) != folder:
            raise refusal(f"add_python_archive: two archives are to be {target!r}", "give each a target_dir of its own")
    for target in content:
        for above in map(str, PurePosixPath(target).parents):
            if above in content:
                raise refusal(f"add_python_archive: {above!r} has {target!r} within it", "put one beside the other")
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
    """A folder with what is in an archive. It is shared by all that use the archive: its files are read-only.

    Raises:
        InvalidJob: there is no such file, it is no archive, or something in it leads out of its folder.
    """
    if not path.is_file():
        raise refusal(f"add_python_archive: there is no {path}")
    unpack = _unzip if path.name.endswith(_ZIP) else _untar if path.name.endswith(_TAR) else None
    if unpack is None:
        raise refusal(
            f"add_python_archive: {path} is no archive that is known", f"pack it as {', '.join((*_ZIP, *_TAR))}"
        )
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()[:24]

    def fill(folder: Path) -> None:
        try:
            unpack(path, folder)
        except PenstockError:
            raise
        except Exception as error:  # each way of packing has errors of its own
            raise refusal(f"add_python_archive: {path} cannot be unpacked: {error}") from error
        _make_read_only(folder)

    return _kept(content, fill)


def _kept(name: str, fill: Callable[[Path], None]) -> Path:
    folder = cache_folder("archives") / name
    if folder.is_dir():
        return folder
    building = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
    try:
        fill(building)
        try:
            os.replace(building, folder)
        except OSError:  # another program was faster
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


def _make_read_only(folder: Path) -> None:
    """Files only: folders that cannot be written to could not be removed."""
    for parent, _, names in os.walk(folder):
        for file in (Path(parent, name) for name in names):
            if not file.is_symlink():
                file.chmod(file.stat().st_mode & ~_WRITE)


def _checked_target(target: str) -> str:
    """As it is always written."""
    if not _stays_inside(target):
        raise refusal(f"add_python_archive: target_dir {target!r} is not below the working directory of functions")
    return str(PurePosixPath(target))


def _stays_inside(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _unsafe(archive: Path, name: str, why: str) -> Exception:
    return refusal(f"add_python_archive: {name!r} in {archive} {why}", "pack it anew, from within the folder")


def _unzip(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            if not _stays_inside(member.filename):
                raise _unsafe(path, member.filename, "leads out of the archive")
            if stat.S_ISLNK(member.external_attr >> 16):
                raise refusal(
                    f"add_python_archive: {member.filename!r} in {path} is a link",
                    "pack links as .tar.gz, or what they lead to",
                )
        for member in members:
            there = archive.extract(member, folder)
            mode = (member.external_attr >> 16) & 0o777
            if mode and not member.is_dir():
                os.chmod(there, mode | stat.S_IRUSR | stat.S_IWUSR)


def _untar(path: Path, folder: Path) -> None:
    with tarfile.open(path) as archive:
        for member in archive:
            if not _stays_inside(member.name) and member.name != ".":
                raise _unsafe(path, member.name, "leads out of the archive")
        try:
            archive.extractall(folder, filter="data")
        except tarfile.FilterError as error:
            raise _unsafe(path, error.tarinfo.name, "is no file or leads out of the archive") from error
