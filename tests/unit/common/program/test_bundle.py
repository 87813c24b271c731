"""Bundles: programs that a client sends to a cluster."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from penstock.common.errors import InvalidJob
from penstock.common.program import bundle
from penstock.common.program.bundle import Bundle, digest_of, import_folders, prepared


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bundle, "_IN_USE", {})
    return tmp_path / "cache"


def zipped(files: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def wheel(name: str, version: str, module: str) -> bytes:
    info = f"{name}-{version}.dist-info"
    return zipped(
        {
            f"{name}.py": module,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
    )


def fill(name: str, content: bytes) -> Path:
    return prepared(name, digest_of(content), lambda: content)


def test_a_module_is_its_code() -> None:
    folder = fill("job.py", b"print(1)")
    assert (folder / "code" / "job.py").read_text() == "print(1)"
    assert (folder / "bundle").read_bytes() == b"print(1)"
    assert import_folders(folder) == [str(folder / "code"), str(folder / "site-packages")]


def test_a_bundle_is_prepared_once() -> None:
    calls = []
    content = b"x = 1"
    for _ in range(2):
        prepared("job.py", digest_of(content), lambda: calls.append(1) or content)
    assert len(calls) == 1


def test_a_single_folder_at_the_top_is_moved_up() -> None:
    folder = fill("job.zip", zipped({"project/job.py": "1", "project/lib/a.py": "2"}))
    assert sorted(path.name for path in (folder / "code").iterdir()) == ["job.py", "lib"]


def test_a_package_at_the_top_stays_a_package() -> None:
    folder = fill("job.zip", zipped({"lib/__init__.py": "", "lib/a.py": "2"}))
    assert (folder / "code" / "lib" / "a.py").exists()


@pytest.mark.parametrize("name", ["/etc/evil.py", "../evil.py", "a/../../evil.py"])
def test_a_member_outside_of_the_archive_is_refused(name: str, cache: Path) -> None:
    with pytest.raises(InvalidJob, match="is outside of the archive"):
        fill("job.zip", zipped({name: "1"}))
    assert not list(cache.rglob("evil.py"))
    assert not list(cache.rglob("building-*"))


@pytest.mark.parametrize("name", ["job.txt", "../job.py", "a/job.py", ".py", "job\n.py"])
def test_a_name_that_is_no_program_is_refused(name: str) -> None:
    with pytest.raises(InvalidJob, match="is not a program"):
        fill(name, b"1")


def test_a_damaged_archive_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"job\.zip cannot be unpacked"):
        fill("job.zip", b"PK, but no archive")


def test_packages_are_installed_from_the_wheels_of_the_archive() -> None:
    files: dict[str, str | bytes] = {
        "job.py": "import tally",
        "requirements.txt": "tally==1.0\n",
        "wheels/tally-1.0-py3-none-any.whl": wheel("tally", "1.0", "VALUE = 7"),
    }
    folder = fill("job.zip", zipped(files))
    code = "import sys; sys.path[:0] = sys.argv[1:]; import tally; print(tally.VALUE)"
    found = subprocess.run(
        [sys.executable, "-c", code, *import_folders(folder)], capture_output=True, text=True, check=True
    )
    assert found.stdout == "7\n"


def test_dependencies_of_a_pyproject_are_installed() -> None:
    files: dict[str, str | bytes] = {
        "job.py": "import tally",
        "pyproject.toml": '[project]\nname = "p"\nversion = "1"\ndependencies = ["tally", "penstock-streaming>=0.1"]\n',
        "wheels/tally-1.0-py3-none-any.whl": wheel("tally", "1.0", "VALUE = 7"),
    }
    assert (fill("job.zip", zipped(files)) / "site-packages" / "tally.py").exists()


def test_a_wheel_is_installed() -> None:
    folder = fill("tally-1.0-py3-none-any.whl", wheel("tally", "1.0", "VALUE = 7"))
    assert (folder / "site-packages" / "tally.py").read_text() == "VALUE = 7"


def test_a_package_that_cannot_be_installed_is_named(cache: Path) -> None:
    files: dict[str, str | bytes] = {"job.py": "", "requirements.txt": "no-such-package==1\n", "wheels/readme.txt": ""}
    with pytest.raises(InvalidJob, match="no-such-package") as raised:
        fill("job.zip", zipped(files))
    assert "wheels" in raised.value.remedy
    assert not list(cache.rglob("building-*"))
    assert not list(cache.rglob(".complete"))


def test_a_package_of_the_engine_is_not_replaced() -> None:
    other = f"{int(np.__version__.split('.')[0]) + 1}.0"
    files: dict[str, str | bytes] = {
        "job.py": "",
        "requirements.txt": f"numpy=={other}\n",
        f"wheels/numpy-{other}-py3-none-any.whl": wheel("numpy", other, ""),
    }
    with pytest.raises(InvalidJob, match="numpy") as raised:
        fill("job.zip", zipped(files))
    assert f"numpy {np.__version__}" in raised.value.remedy


def test_a_copy_of_a_package_of_the_engine_is_removed() -> None:
    files: dict[str, str | bytes] = {
        "job.py": "",
        "requirements.txt": "numpy\n",
        f"wheels/numpy-{np.__version__}-py3-none-any.whl": wheel("numpy", np.__version__, "WRONG = True"),
    }
    assert not (fill("job.zip", zipped(files)) / "site-packages" / "numpy.py").exists()


def test_a_lock_file_without_requirements_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"uv\.lock but no requirements\.txt") as raised:
        fill("job.zip", zipped({"job.py": "", "uv.lock": ""}))
    assert "uv export" in raised.value.remedy


def test_bundles_that_a_process_uses_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_KEPT", 1)
    used = [fill("job.py", f"x = {n}".encode()) for n in range(3)]
    assert all(folder.exists() for folder in used)
    for file in bundle._IN_USE.values():  # as if their processes had ended
        file.close()
    bundle._IN_USE.clear()
    last = fill("job.py", b"x = 99")
    assert last.exists()
    assert sum(folder.exists() for folder in used) == 1


def test_a_search_path_is_translated_to_this_machine(tmp_path: Path) -> None:
    content = b"x = 1"
    there = Bundle("job.py", digest_of(content), "/elsewhere/abc")
    found = there.path_here(["/elsewhere/abc/code", "/usr/lib/python"], lambda: content)
    assert Path(found[0]).is_dir()
    assert Path(found[0]).name == "code"
    assert found[1] == "/usr/lib/python"


def test_an_archive_with_too_much_content_is_refused(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(bundle, "MAX_UNPACKED", 1 << 20)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("job.py", "")
        archive.writestr("zeros", bytes(2 << 20))
    assert len(out.getvalue()) < 10_000
    with pytest.raises(InvalidJob, match=r"job\.zip is too large: with 'zeros' it unpacks to more than 1 MiB"):
        fill("job.zip", out.getvalue())
    assert not list(cache.rglob("zeros"))
