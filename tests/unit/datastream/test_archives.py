"""`add_python_archive`: unpacked once, by content, under the names that functions read; what leads out of it is refused."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.program.archives import working_folder
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session import Session
from tests.in_process import InProcess


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "archives"


def packed(path: Path, **files: str) -> str:
    """An archive of these files; its kind is told by its name."""
    content = {name.replace("__", "/"): text.encode() for name, text in files.items()}
    if path.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in content.items():
                archive.writestr(name, text)
        return str(path)
    with tarfile.open(path, "w:gz" if path.name.endswith(("gz",)) else "w") as archive:
        for name, text in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return str(path)


def folder_of(env: StreamExecutionEnvironment) -> Path:
    env.from_collection([1]).print()
    return Path(working_folder(env.get_program().configuration["python.archives"].split(";")))


@pytest.mark.parametrize("name", ["data.zip", "data.whl", "data.tar", "data.tar.gz", "data.tgz"])
def test_functions_find_an_archive_by_its_target_or_its_name(
    env: StreamExecutionEnvironment, tmp_path: Path, name: str
) -> None:
    path = packed(tmp_path / name, a="1", deep__b="2")
    env.add_python_archive(path, "model")
    env.add_python_archive(path)
    folder = folder_of(env)
    assert (folder / "model" / "a").read_text() == "1"
    assert (folder / name / "deep" / "b").read_text() == "2"


def test_what_has_the_same_content_is_unpacked_once(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path
) -> None:
    for _ in range(2):
        env.add_python_archive(packed(tmp_path / "data.tar", a="1"), "data")
    first = folder_of(env)
    assert folder_of(env) == first
    assert len(list(cache.iterdir())) == 2
    packed(tmp_path / "data.tar", a="2")
    assert (folder_of(env) / "data" / "a").read_text() == "2"
    assert (first / "data" / "a").read_text() == "1"


def test_what_may_be_run_stays_so(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    path = tmp_path / "tools.zip"
    with zipfile.ZipFile(path, "w") as archive:
        tool = zipfile.ZipInfo("tool")
        tool.external_attr = 0o100755 << 16
        archive.writestr(tool, "#!/bin/sh\n")
    env.add_python_archive(str(path), "tools")
    assert os.access(folder_of(env) / "tools" / "tool", os.X_OK)


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", ["../a", "/a", "b/../../a"])
def test_what_leads_out_of_an_archive_is_refused(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path, kind: str, name: str
) -> None:
    path = packed(tmp_path / f"data.{kind}", **{"good": "", name: ""})
    with pytest.raises(InvalidJob, match="leads out of the archive"):
        env.add_python_archive(path)
    assert list(cache.iterdir()) == []


def test_a_link_that_leads_out_of_an_archive_is_refused(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "data.tar", "w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../secret"
        archive.addfile(link)
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as zipped:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = 0o120777 << 16
        zipped.writestr(entry, "inside")
    with pytest.raises(InvalidJob, match=r"'link' in .* leads out of the archive"):
        env.add_python_archive(str(tmp_path / "data.tar"))
    with pytest.raises(InvalidJob, match=r"'link' in .* is a link"):
        env.add_python_archive(str(tmp_path / "data.zip"))


def test_what_is_no_archive_or_has_no_place_is_refused(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "data.zip").write_text("text")
    (tmp_path / "data.rar").write_text("text")
    good, other = packed(tmp_path / "a.tar", a="1"), packed(tmp_path / "b.tar", a="2")
    with pytest.raises(InvalidJob, match=r"data\.zip cannot be unpacked: File is not a zip file"):
        env.add_python_archive(str(tmp_path / "data.zip"))
    with pytest.raises(InvalidJob, match="no archive that is known"):
        env.add_python_archive(str(tmp_path / "data.rar"))
    for target in ("..", "/data", "a/../../b"):
        with pytest.raises(InvalidJob, match="is not below the working directory"):
            env.add_python_archive(good, target)
    env.add_python_archive(good, "data")
    env.add_python_archive(other, "./data")
    with pytest.raises(InvalidJob, match="two archives are to be 'data'"):
        folder_of(env)


@pytest.mark.parametrize("targets", [("m", "m/b"), ("m/b/c", "./m")])
def test_an_archive_within_another_is_refused_and_nothing_is_put_into_it(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path, targets: tuple[str, str]
) -> None:
    for name, target in zip("ab", targets, strict=True):
        env.add_python_archive(packed(tmp_path / f"{name}.zip", **{name: ""}), target)
    with pytest.raises(InvalidJob, match=r"'m' has 'm/b.*' within it"):
        folder_of(env)
    assert sorted(file.name for file in cache.rglob("*") if not file.is_dir() or file.is_symlink()) == ["a", "b"]


def test_a_target_is_the_same_however_it_is_written(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", x="1")
    env.add_python_archive(path, "./q//")
    env.add_python_archive(path, "q")
    env.add_python_archive(path, "r/s")
    env.add_python_archive(path, "r/t")
    assert [(folder_of(env) / target / "x").read_text() for target in ("q", "r/s", "r/t")] == ["1"] * 3


def encrypted(path: Path) -> None:
    packed(path, a="1")
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)


def of_an_unknown_method(path: Path) -> None:
    packed(path, a="1")
    content = bytearray(path.read_bytes())
    content[8] = content[content.index(b"PK\1\2") + 10] = 77
    path.write_bytes(content)


def corrupt(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", os.urandom(10) + b"a" * 100_000)
    content = bytearray(path.read_bytes())
    content[40:60] = b"\xff" * 20
    path.write_bytes(content)


def a_file_that_is_a_folder(path: Path) -> None:
    packed(path, f="1", f__g="2")


@pytest.mark.parametrize("make", [encrypted, of_an_unknown_method, corrupt, a_file_that_is_a_folder])
def test_what_cannot_be_unpacked_is_named(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "data.zip")
    with pytest.raises(InvalidJob, match=r"data\.zip cannot be unpacked: \S+"):
        env.add_python_archive(str(tmp_path / "data.zip"))
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(("name", "target"), [("a;b.zip", None), ("a#b.zip", None), ("a;b.zip", "m"), ("a.zip", "m;n")])
def test_names_that_the_option_cannot_hold_are_refused_at_once(
    env: StreamExecutionEnvironment, tmp_path: Path, name: str, target: str | None
) -> None:
    path = packed(tmp_path / name, x="1")
    with pytest.raises(InvalidJob, match=r"'.*[;#].*' has a sign that python.archives has for itself"):
        env.add_python_archive(path, target)


def test_a_path_may_have_the_sign_in_front_of_a_target(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    env.add_python_archive(packed(tmp_path / "a#b.zip", x="1"), "m")
    assert (folder_of(env) / "m" / "x").read_text() == "1"


def test_what_programs_share_cannot_be_overwritten_by_one_of_them(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.add_python_archive(packed(tmp_path / "a.zip", x="1"), "m")
    assert not (folder_of(env) / "m" / "x").stat().st_mode & 0o222


def test_a_relative_cache_is_where_the_program_was_started(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_CACHE", "of/mine")
    env.add_python_archive(packed(tmp_path / "a.zip", x="1"), "m")
    assert (folder_of(env) / "m" / "x").read_text() == "1"
    assert folder_of(env).parent == tmp_path / "of" / "mine" / "archives"


def test_a_job_in_the_programs_process_is_refused(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    env.add_python_archive(packed(tmp_path / "data.zip", a="1"), "data")
    with executing_on(Session(InProcess())), pytest.raises(InvalidJob, match="all slots are in the program's process"):
        list(env.from_collection([1]).map(str).execute_and_collect())
