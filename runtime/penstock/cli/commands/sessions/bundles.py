"""The bundle that `penstock run -m URL` sends: the program, its own modules, and its list of packages."""

from __future__ import annotations

import ast
import io
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.errors import UsageError
from penstock.common.program.bundle import MAX_BYTES, SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_IGNORED = ("__pycache__", "node_modules", "build", "dist", ".venv", "venv")
REQUIREMENTS = "requirements.txt"


def bundle_of(program: str, files: Sequence[str] = (), requirements: str | None = None) -> tuple[str, bytes]:
    """Return the file name and the content of a bundle.

    Args:
        program: a module (`.py`), a folder, an archive or a wheel. If a module imports other modules from its folder,
            these are added.
        files: more files and folders, which are added at the top.
        requirements: file with the packages that the program needs.

    Raises:
        UsageError: a file does not exist, or the bundle is too large.
    """
    path = Path(program)
    if not path.exists():
        raise UsageError(
            f"the program {program} does not exist",
            remedy=f"pass a module, a folder, an archive or a wheel. The current folder is {Path.cwd()}",
        )
    extra = [_existing(file) for file in files]
    if path.is_file() and path.suffix != ".py":
        if extra or requirements:
            raise UsageError(
                f"{program} is sent as it is, so no file can be added to it",
                remedy="add the files to the archive, or pass a folder instead of it",
            )
        return _checked(path.name, path.read_bytes())
    if path.suffix == ".py":
        _check_syntax(path)
    found = dict(_folder(path) if path.is_dir() else _modules_of(path))
    for one in extra:
        found.update(_folder(one, one.name) if one.is_dir() else [(one.name, one)])
    if requirements is not None:
        found[REQUIREMENTS] = _existing(requirements)
    if len(found) == 1 and path.is_file():
        return _checked(path.name, path.read_bytes())
    return _checked(f"{path.resolve().stem or 'program'}.zip", _zipped(found, path if path.is_dir() else None))


def _check_syntax(script: Path) -> None:
    """Raise `UsageError` if Python cannot parse the program."""
    try:
        ast.parse(script.read_bytes(), str(script))
    except SyntaxError as error:
        line = (error.text or "").rstrip()
        mark = " " * (max(1, error.offset or 1) - 1) + "^"
        raise UsageError(
            f"{script}:{error.lineno}: {error.msg}\n  {line}\n  {mark}", remedy="correct the line"
        ) from None
    except ValueError as error:
        raise UsageError(f"{script} is not a Python file: {error}", remedy="pass a text file in UTF-8") from None


def _existing(name: str) -> Path:
    path = Path(name)
    if not path.exists():
        raise UsageError(f"{name} does not exist", remedy=f"check the path. The current folder is {Path.cwd()}")
    return path


def _checked(name: str, content: bytes) -> tuple[str, bytes]:
    if not name.endswith(SUFFIXES):
        raise UsageError(
            f"{name} is not a program", remedy=f"pass a folder, or a file that ends with {', '.join(SUFFIXES)}"
        )
    if len(content) > MAX_BYTES:
        raise UsageError(
            f"{name} has {len(content) >> 20} MiB, and a program may have {MAX_BYTES >> 20} MiB",
            remedy="put data into storage, and large packages into the image of the cluster",
        )
    return name, content


def _folder(folder: Path, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Yield the files of a folder by their names in the bundle, without hidden files, environments and outputs of builds."""
    for path in sorted(folder.iterdir()):
        name = f"{prefix}/{path.name}" if prefix else path.name
        if path.name.startswith(".") or path.name in _IGNORED or path.suffix == ".pyc":
            continue
        if path.is_dir():
            if not (path / "pyvenv.cfg").exists():
                yield from _folder(path, name)
        elif path.is_file():
            yield name, path


def _modules_of(script: Path) -> Iterator[tuple[str, Path]]:
    """Yield the script, and the modules and packages of its folder that it imports, directly or through each other."""
    home = script.resolve().parent
    yield script.name, script
    pending, seen = [script], {script.resolve()}
    while pending:
        for name in sorted(_imported(pending.pop())):
            module, package = home / f"{name}.py", home / name
            if (package / "__init__.py").is_file() and package not in seen:
                seen.add(package)
                members = list(_folder(package, name))
                yield from members
                pending += [path for _, path in members if path.suffix == ".py"]
            elif module.is_file() and module not in seen:
                seen.add(module)
                yield module.name, module
                pending.append(module)


def _imported(path: Path) -> set[str]:
    """Return the first part of the names of all modules that a module imports. A module with a syntax error imports none."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def _zipped(files: dict[str, Path], folder: Path | None) -> bytes:
    """Return a zip archive whose content depends on the files only, so that the cluster prepares the same program once."""
    content = {name: path.read_bytes() for name, path in files.items()}
    if folder is not None and REQUIREMENTS not in content and "uv.lock" in content:
        content[REQUIREMENTS] = _locked(folder)
    if REQUIREMENTS in content:
        content.pop("uv.lock", None)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(content):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content[name])
    return out.getvalue()


def _locked(folder: Path) -> bytes:
    """Return the packages of the folder's uv.lock as a requirements file."""
    uv = shutil.which("uv")
    if uv is None:
        raise UsageError(
            f"{folder} has uv.lock, and `uv` is not installed",
            remedy="install uv, or add requirements.txt: uv export --no-dev --no-emit-project -o requirements.txt",
        )
    command = [uv, "export", "--frozen", "--quiet", "--no-dev", "--no-emit-project", "--project", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(
            f"uv cannot read the lock file of {folder}: {done.stderr.strip()}", remedy="run `uv lock` there"
        )
    return done.stdout.encode()
