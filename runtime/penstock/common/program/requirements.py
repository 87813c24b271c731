"""The packages of a requirements file. This module finds missing packages, and installs packages outside of the
environment.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock.common.folders.private_folder import cache_folder, filled
from penstock.common.program.user_location import refusal

_INCLUDE = re.compile(r"(-r|--requirement|-c|--constraint)[\s=]*(.+)")
_REQUIRE = ("-r", "--requirement")
_COMMENT = re.compile(r"(^|\s)#.*")
_MAX_LINES = 3
"""Number of lines of the installer's output that an error shows."""


def missing_packages(path: Path) -> list[str]:
    """Return the lines that this interpreter's packages do not meet, including lines of included files (`-r`).

    Names, versions and markers are checked. A line without a name (another option, a URL) counts as missing.

    Raises:
        InvalidJob: a package is installed in another version. Penstock does not replace it, because the engine may use
            it.
    """
    from packaging.requirements import InvalidRequirement, Requirement  # few programs need it

    missing, others = [], []
    for file in _files(path, _REQUIRE):
        for line in _lines(file):
            option = _INCLUDE.match(line)
            if option is not None and option[1] in _REQUIRE and (file.parent / option[2]).is_file():
                continue
            try:
                wanted = Requirement(line.partition(" --")[0])  # drops options such as --hash
            except InvalidRequirement:
                missing.append(line)
                continue
            if wanted.marker is not None and not wanted.marker.evaluate():
                continue
            try:
                installed_version = version(wanted.name)
            except PackageNotFoundError:
                missing.append(line)
                continue
            if wanted.url is not None:
                missing.append(line)
            elif not wanted.specifier.contains(installed_version, prereleases=True):
                others.append(f"{line} (installed: {installed_version})")
    if others:
        raise refusal(
            f"set_python_requirements: {path} requires other versions of installed packages: {', '.join(others)}",
            "install these versions where the program and its workers run, or put them into the job's image",
        )
    return missing


def _lines(path: Path) -> list[str]:
    """Return the lines without comments. Join lines that end with a backslash."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in (_COMMENT.sub("", each).strip() for each in text.splitlines()) if line]


def _files(path: Path, options: tuple[str, ...]) -> list[Path]:
    """Return a requirements file and the files that it names with these options. A missing file is left for pip to report."""
    found = [path]
    for file in found:
        for option in filter(None, map(_INCLUDE.match, _lines(file))):
            named = file.parent / option[2]
            if option[1] in options and named.is_file() and named not in found:
                found.append(named)
    return found


def installed(path: Path, packages: Path | None) -> Path:
    """Return a folder with the packages of a requirements file. pip installs them once, and later programs use the same folder.

    Args:
        packages: a folder with all packages; None means that pip downloads them.

    Raises:
        InvalidJob: pip cannot install them. The error has the end of pip's output.
    """
    folder = cache_folder("requirements") / _digest(path, packages)
    if folder.is_dir():
        return folder
    with filled(folder) as building:
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
            output = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise refusal(
                f"set_python_requirements: pip cannot install the packages of {path}: {'; '.join(output[-_MAX_LINES:])}",
                "install the packages where the program and its workers run, or add them to the image of the job. A folder "
                "of packages can also be passed as requirements_cache_dir",
            )
    return folder


def _digest(path: Path, packages: Path | None) -> str:
    """Return a digest of the file and its included files, the packages folder, and the interpreter."""
    content = hashlib.sha256(f"{sys.implementation.cache_tag} {sys.platform}\n".encode())
    files = _files(path, (*_REQUIRE, "-c", "--constraint"))
    if packages is not None:
        files += sorted(each for each in packages.rglob("*") if each.is_file())
    for file in files:
        content.update(f"{file.name} {file.stat().st_size}\n".encode())
        content.update(file.read_bytes())
    return content.hexdigest()[:24]
