"""The files that `make prose` reads, and their findings."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath

from tools.errors import ToolError
from tools.prose.cache import Cache
from tools.prose.comments import read_comments
from tools.prose.markdown import read_markdown
from tools.prose.passages import Reading
from tools.prose.python_source import read_python
from tools.prose.rules import Finding, Rules, load

_COMMENTED = {".java", ".js", ".css", ".go", ".sh", ".yaml", ".yml", ".toml", ".tpl"}
_NAMES = {"Makefile", "Dockerfile", "run"}
_LEFT_OUT = (
    "*/vendor/*",  # third-party files
    "tests/golden/*/*",  # recorded data
    "crds/*",  # generated from the models, which are read
    "charts/*/files/crds/*",
    "tools/prose/rules.yaml",  # has all forbidden words
)
_WORKERS = 4
_MANY = 50


def files(root: Path, paths: Sequence[str] = ()) -> list[str]:
    """Return the files to read below `paths` (all by default), relative to the root, tracked by git or new.

    Raises:
        ToolError: a path holds no file that is read.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise ToolError(f"git cannot list files: {listed.stderr.strip()}", remedy="name paths inside the repository")
    found = sorted({name for name in listed.stdout.split("\0") if name and is_read(name) and (root / name).is_file()})
    if paths and not found:
        raise ToolError(f"no text to check below {' '.join(paths)}", remedy="check the spelling of PATHS")
    return found


def is_read(name: str) -> bool:
    """Return whether the check reads a file."""
    path = PurePosixPath(name)
    if any(fnmatch(name, pattern) for pattern in _LEFT_OUT):
        return False
    return path.suffix in {".py", ".md"} | _COMMENTED or path.name in _NAMES


def read(name: str, text: str) -> Reading:
    """Return the passages of a file by the reader of its kind."""
    suffix = PurePosixPath(name).suffix
    if suffix == ".py":
        return read_python(text)
    return read_markdown(text) if suffix == ".md" else read_comments(text, suffix)


@cache
def _rules() -> Rules:
    return load()


def _check(root: Path, name: str) -> list[Finding]:
    try:
        return _rules().findings(name, read(name, (root / name).read_text()))
    except SyntaxError as error:
        raise ToolError(f"{name} is not Python: {error}", remedy="fix it; `make lint` shows more") from error


def check(root: Path, names: Sequence[str]) -> list[Finding]:
    """Return the findings of these files, in the order of path and line."""
    if len(names) < _MANY:
        return [finding for name in names for finding in _check(root, name)]
    cache_of_tree = Cache(root / "build/prose/findings.json")
    digests = {name: cache_of_tree.digest(name, (root / name).read_bytes()) for name in names}
    known = {name: cache_of_tree.find(digest) for name, digest in digests.items()}
    unread = [name for name, findings in known.items() if findings is None]
    if len(unread) < _MANY:
        known.update((name, _check(root, name)) for name in unread)
    else:
        with ProcessPoolExecutor(_WORKERS) as pool:
            known.update(zip(unread, pool.map(_check, [root] * len(unread), unread, chunksize=20), strict=True))
    found = {name: findings or [] for name, findings in known.items()}
    if unread:
        cache_of_tree.save({digests[name]: findings for name, findings in found.items()})
    return [finding for findings in found.values() for finding in findings]
