"""`add_python_archive`: archives are unpacked once, by content, under the names that functions use. Members outside are
refused."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob
from penstock.common.program.archives import working_folder
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from tests.in_process import InProcess
from tests.unit.state.hostile import NAMES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "archives"


def packed(path: Path, **files: str) -> str:
    """Write an archive of these files. The suffix of the path determines its kind."""
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


def test_archives_of_the_same_content_are_unpacked_once(
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


def test_executable_files_remain_executable(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    path = tmp_path / "tools.zip"
    with zipfile.ZipFile(path, "w") as archive:
        tool = zipfile.ZipInfo("tool")
        tool.external_attr = 0o100755 << 16
        archive.writestr(tool, "#!/bin/sh\n")
    env.add_python_archive(str(path), "tools")
    assert os.access(folder_of(env) / "tools" / "tool", os.X_OK)


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", ["../a", "/a", "b/../../a"])
def test_a_member_outside_of_the_archive_is_refused(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path, kind: str, name: str
) -> None:
    path = packed(tmp_path / f"data.{kind}", **{"good": "", name: ""})
    with pytest.raises(InvalidJob, match="outside of the archive"):
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
    with pytest.raises(InvalidJob, match=r"'link' in .* outside of the archive"):
        env.add_python_archive(str(tmp_path / "data.tar"))
    with pytest.raises(InvalidJob, match=r"'link' in .* is a link"):
        env.add_python_archive(str(tmp_path / "data.zip"))


def tarred(path: Path, *members: tuple[str, bytes, str]) -> str:
    """Write an archive of members of any type: name, type, and the content or the target of a link."""
    with tarfile.open(path, "w") as archive:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(text)
            else:
                member.linkname = text
            archive.addfile(member, io.BytesIO(text.encode()))
    return str(path)


THROUGH_LINKS: dict[str, list[tuple[str, bytes, str]]] = {
    "a file below a link": [("d", tarfile.SYMTYPE, "."), ("d/f", tarfile.REGTYPE, "x")],
    "a file in place of a link": [("d", tarfile.SYMTYPE, "f"), ("./d", tarfile.REGTYPE, "x")],
    "a link after a file below it": [("d/f", tarfile.REGTYPE, "x"), ("d", tarfile.SYMTYPE, ".")],
    "a link below a link": [("d", tarfile.SYMTYPE, "."), ("d/e", tarfile.SYMTYPE, "f")],
    "a hard link to a link": [("d", tarfile.SYMTYPE, "f"), ("e", tarfile.LNKTYPE, "d")],
    "a hard link below a link": [("d", tarfile.SYMTYPE, "."), ("e", tarfile.LNKTYPE, "d/f")],
}


@pytest.mark.parametrize("members", THROUGH_LINKS.values(), ids=THROUGH_LINKS)
def test_nothing_is_written_through_a_link_of_an_archive(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path, members: list[tuple[str, bytes, str]]
) -> None:
    path = tarred(tmp_path / "data.tar", ("f", tarfile.REGTYPE, "good"), *members)
    with pytest.raises(InvalidJob, match="passes through a link of the archive"):
        env.add_python_archive(path)
    assert list(cache.iterdir()) == []


def test_links_within_an_archive_are_kept(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    members = [("lib/f", tarfile.REGTYPE, "good"), ("lib64", tarfile.SYMTYPE, "lib"), ("g", tarfile.LNKTYPE, "lib/f")]
    env.add_python_archive(tarred(tmp_path / "data.tar", *members), "m")
    folder = folder_of(env) / "m"
    assert (folder / "lib64" / "f").read_text() == (folder / "g").read_text() == "good"


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path, kind: bytes
) -> None:
    with pytest.raises(InvalidJob, match="is not a file"):
        env.add_python_archive(tarred(tmp_path / "data.tar", ("null", kind, "")))
    modes = {tarfile.CHRTYPE: stat.S_IFCHR, tarfile.BLKTYPE: stat.S_IFBLK, tarfile.FIFOTYPE: stat.S_IFIFO}
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        entry = zipfile.ZipInfo("null")
        entry.external_attr = (modes[kind] | 0o666) << 16
        archive.writestr(entry, "")
    with pytest.raises(InvalidJob, match="is neither a file nor a folder"):
        env.add_python_archive(str(tmp_path / "data.zip"))
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_an_archive_that_would_fill_the_disk_is_refused_before_it_is_unpacked(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path / f"data.{kind}", a="1" * 600, b="2" * 600)
    monkeypatch.setattr("penstock.common.program.archives.MAX_BYTES", 1000)
    with pytest.raises(InvalidJob, match=r"is too large: with 'b' it unpacks to more than 1000 bytes"):
        env.add_python_archive(path)
    monkeypatch.setattr("penstock.common.program.archives.MAX_BYTES", 2000)
    monkeypatch.setattr("penstock.common.program.archives.MAX_MEMBERS", 1)
    with pytest.raises(InvalidJob, match="has more than 1 members"):
        env.add_python_archive(path)
    assert list(cache.iterdir()) == []


def test_a_size_below_zero_is_refused(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    path = tmp_path / "data.tar"
    header = bytearray(tarfile.TarInfo("a").tobuf())
    header[124:136] = b"\xff" * 11 + b"\x00"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(bytes(header) + bytes(1024))
    with pytest.raises(InvalidJob, match=r"data\.tar"):
        env.add_python_archive(str(path))


@pytest.mark.parametrize("kind", ["zip", "tar"])
@given(name=st.one_of(st.sampled_from(NAMES), st.text(max_size=12), st.text("./\\a\n", max_size=8)))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hostile_names_stay_in_the_cache_or_are_refused_with_a_code(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path, kind: str, name: str
) -> None:
    path = tmp_path / f"data.{kind}"
    before = {file for file in tmp_path.iterdir() if file != path}
    try:
        packed(path, **{name: "content"})
    except (ValueError, IndexError, OSError):  # this archive cannot be written
        return
    for target in (None, name):
        with suppress(InvalidJob):
            env.add_python_archive(str(path), target)
            folder_of(env)
    cache.mkdir(parents=True, exist_ok=True)
    assert {file for file in tmp_path.iterdir() if file != path} - {tmp_path / "cache"} == before - {tmp_path / "cache"}
    assert not [file for file in cache.rglob("*") if not file.name.isprintable()]
    assert not list(cache.glob("building-*"))


def test_a_file_that_is_no_archive_and_an_invalid_target_are_refused(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "data.zip").write_text("text")
    (tmp_path / "data.rar").write_text("text")
    good, other = packed(tmp_path / "a.tar", a="1"), packed(tmp_path / "b.tar", a="2")
    with pytest.raises(InvalidJob, match=r"data\.zip cannot be unpacked: File is not a zip file"):
        env.add_python_archive(str(tmp_path / "data.zip"))
    with pytest.raises(InvalidJob, match="not an archive of a known type"):
        env.add_python_archive(str(tmp_path / "data.rar"))
    for target in ("..", "/data", "a/../../b"):
        with pytest.raises(InvalidJob, match="is not below the working directory"):
            env.add_python_archive(good, target)
    env.add_python_archive(good, "data")
    env.add_python_archive(other, "./data")
    with pytest.raises(InvalidJob, match="two archives have the target folder 'data'"):
        folder_of(env)


@pytest.mark.parametrize("targets", [("m", "m/b"), ("m/b/c", "./m")])
def test_an_archive_inside_the_folder_of_another_is_refused(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path, targets: tuple[str, str]
) -> None:
    for name, target in zip("ab", targets, strict=True):
        env.add_python_archive(packed(tmp_path / f"{name}.zip", **{name: ""}), target)
    with pytest.raises(InvalidJob, match=r"'m/b.*' is inside of the target folder 'm'"):
        folder_of(env)
    assert sorted(file.name for file in cache.rglob("*") if not file.is_dir() or file.is_symlink()) == ["a", "b"]


def test_a_target_is_the_same_in_every_spelling(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
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
def test_an_archive_that_cannot_be_unpacked_is_named(
    env: StreamExecutionEnvironment, tmp_path: Path, cache: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "data.zip")
    with pytest.raises(InvalidJob, match=r"data\.zip cannot be unpacked: \S+"):
        env.add_python_archive(str(tmp_path / "data.zip"))
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(("name", "target"), [("a;b.zip", None), ("a#b.zip", None), ("a;b.zip", "m"), ("a.zip", "m;n")])
def test_names_that_the_option_cannot_contain_are_refused_immediately(
    env: StreamExecutionEnvironment, tmp_path: Path, name: str, target: str | None
) -> None:
    path = packed(tmp_path / name, x="1")
    with pytest.raises(InvalidJob, match=r"'.*[;#].*' contains a character that python.archives uses as a separator"):
        env.add_python_archive(path, target)


def test_a_path_may_contain_the_separator_of_a_target(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    env.add_python_archive(packed(tmp_path / "a#b.zip", x="1"), "m")
    assert (folder_of(env) / "m" / "x").read_text() == "1"


def test_shared_files_of_programs_cannot_be_overwritten(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    env.add_python_archive(packed(tmp_path / "a.zip", x="1"), "m")
    assert not (folder_of(env) / "m" / "x").stat().st_mode & 0o222


def test_a_relative_cache_is_in_the_start_folder_of_the_program(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_CACHE", "of/mine")
    env.add_python_archive(packed(tmp_path / "a.zip", x="1"), "m")
    assert (folder_of(env) / "m" / "x").read_text() == "1"
    assert folder_of(env).parent == tmp_path / "of" / "mine" / "archives"


def test_a_job_in_the_programs_process_is_refused(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    env.add_python_archive(packed(tmp_path / "data.zip", a="1"), "data")
    with executing_on(Session(InProcess())), pytest.raises(InvalidJob, match="all slots run in the program's process"):
        list(env.from_collection([1]).map(str).execute_and_collect())
