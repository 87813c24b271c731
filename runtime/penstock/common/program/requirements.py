"""What a requirements file asks for: whether it is there, and installing what is not, beside the environment."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock.common.folders.private_folder import cache_folder
from penstock.common.program.user_location import refusal

_INCLUDE = re.compile(r"(-r|--requirement|-c|--constraint)[\s=]*(.+)")
_REQUIRE = ("-r", "--requirement")
_COMMENT = re.compile(r"(^|\s)#.*")
_TOLD_LINES = 3
"""Of what the installer says when it fails."""


def missing_packages(path: Path) -> list[str]:
    """The lines that this interpreter's packages do not meet, also of files that it takes in (`-r`).

    Names, versions and markers are looked at; a line that has no name (another option, a URL) counts as missing.

    Raises:
        InvalidJob: a package is there in another version. What the program runs with is not replaced: it may be the engine's.
    """
    from packaging.requirements import InvalidRequirement, Requirement  # few programs need it

    missing, others = [], []
    for file in _files(path, _REQUIRE):
        for line in _lines(file):
            option = _INCLUDE.match(line)
            if option is not None and option[1] in _REQUIRE and (file.parent / option[2]).is_file():
                continue
            try:
                wanted = Requirement(line.partition(" --")[0])  # such as --hash
            except InvalidRequirement:
                missing.append(line)
                continue
            if wanted.marker is not None and not wanted.marker.evaluate():
                continue
            try:
                there = version(wanted.name)
            except PackageNotFoundError:
                missing.append(line)
                continue
            if wanted.url is not None:
                missing.append(line)
            elif not wanted.specifier.contains(there, prereleases=True):
                others.append(f"{line} (there is {there})")
    if others:
        raise refusal(
            f"set_python_requirements: {path} asks for other versions of packages that are there: {', '.join(others)}",
            "install these versions where the program and its workers run, or put them into the job's image",
        )
    return missing


def _lines(path: Path) -> list[str]:
    """Without comments, and with those put together that a backslash parts."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in (_COMMENT.sub("", each).strip() for each in text.splitlines()) if line]


def _files(path: Path, options: tuple[str, ...]) -> list[Path]:
    """A requirements file and those that it names with these options. What is not there is pip's to tell."""
    found = [path]
    for file in found:
        for told in filter(None, map(_INCLUDE.match, _lines(file))):
            named = file.parent / told[2]
            if told[1] in options and named.is_file() and named not in found:
                found.append(named)
    return found


def installed(path: Path, packages: Path | None) -> Path:
    """A folder with what a requirements file asks for, installed by pip and kept by content for the next program.

    Args:
        packages: a folder of packages to take all from; None: they come from where pip gets them.

    Raises:
        InvalidJob: they cannot be installed; with the end of what pip says.
    """
    folder = cache_folder("requirements") / _content(path, packages)
    if folder.is_dir():
        return folder
    building = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
    try:
        source = [] if packages is None else ["--no-index", "--find-links", str(packages)]
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--target",
            str(building),
        ]
        done = subprocess.run([*pip, "-r", str(path), *source], capture_output=True, text=True, check=False)
        if done.returncode:
            told = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise refusal(
                f"set_python_requirements: pip cannot install what {path} asks for: {'; '.join(told[-_TOLD_LINES:])}",
                "install it where the program and its workers run, put it into the job's image, or give a folder "
                "with the packages as requirements_cache_dir",
            )
        try:
            os.replace(building, folder)
        except OSError:  # another program was faster
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


def _content(path: Path, packages: Path | None) -> str:
    """Names what is installed: the file and those that it takes in, the packages it is taken from, and the interpreter."""
    content = hashlib.sha256(f"{sys.implementation.cache_tag} {sys.platform}\n".encode())
    files = _files(path, (*_REQUIRE, "-c", "--constraint"))
    if packages is not None:
        files += sorted(each for each in packages.rglob("*") if each.is_file())
    for file in files:
        content.update(f"{file.name} {file.stat().st_size}\n".encode())
        content.update(file.read_bytes())
    return content.hexdigest()[:24]
