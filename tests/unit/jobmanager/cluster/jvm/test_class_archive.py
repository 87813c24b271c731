"""The class archive: created once for each Java, Spark and class list, and used only with its path jar."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from penstock.common.errors import ClusterError
from penstock.jobmanager.cluster.jvm import class_archive
from penstock.jobmanager.cluster.jvm.class_archive import (
    class_path,
    extra_class_path,
    find_archive,
    jvm_options,
    make_archive,
)
from tools.images.context import ARCHIVE

ROOT = Path(__file__).parents[5]
JAVA = """#!/bin/sh
echo run >> "$(dirname "$0")/runs"
for argument in "$@"; do
  case "$argument" in -XX:SharedArchiveFile=*) echo classes > "${argument#*=}" ;; esac
done
exit "$(cat "$(dirname "$0")/code")"
"""


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create a Java that writes archives of one line, and return its folder."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (home / "bin" / "java").write_text(JAVA)
    (home / "bin" / "java").chmod(0o755)
    (home / "bin" / "code").write_text("0")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return str(home)


def test_jvms_start_without_an_archive_until_it_exists(java_home: str) -> None:
    assert find_archive(java_home) is None
    assert extra_class_path(java_home) == ""
    assert "-Dkeystore.pkcs12.keyPbeIterationCount=1" in jvm_options(java_home)
    assert not any("SharedArchiveFile" in option for option in jvm_options(java_home))
    archive = make_archive()
    assert find_archive(java_home) == archive
    assert f"-XX:SharedArchiveFile={archive}" in jvm_options(java_home)
    assert class_path(java_home).split(":")[0] == extra_class_path(java_home) == str(archive.with_suffix(".jar"))
    assert {path.name for path in archive.parent.iterdir()} == {archive.name, archive.with_suffix(".jar").name}


def test_a_current_archive_is_not_created_again(
    java_home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = make_archive()
    assert make_archive() == first
    runs = Path(java_home, "bin", "runs")
    assert runs.read_text() == "run\n"
    other = tmp_path / "classes.txt"
    other.write_text("java/lang/Object\n")
    monkeypatch.setattr(class_archive, "CLASS_LIST", other)
    assert make_archive() != first
    Path(java_home, "release").write_text('JAVA_VERSION="21.0.1"\n')
    assert find_archive(java_home) is None


def test_a_failed_archive_leaves_no_files(java_home: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(java_home, "bin", "code").write_text("1")
    with pytest.raises(ClusterError, match=r"could not make an archive of classes \(code 1\)"):
        make_archive()
    assert find_archive(java_home) is None
    assert class_archive.main([]) == 1
    assert "CLUSTER" in capsys.readouterr().err


def test_the_path_jar_names_sparks_jars_in_a_fixed_order(java_home: str) -> None:
    path_jar = make_archive().with_suffix(".jar")
    manifest = zipfile.ZipFile(path_jar).read("META-INF/MANIFEST.MF").decode()
    assert max(map(len, manifest.split("\r\n"))) <= 72
    attributes = dict(line.split(": ", 1) for line in manifest.replace("\r\n ", "").splitlines() if line)
    named = [(path_jar.parent / entry).resolve() for entry in attributes["Class-Path"].split()]
    assert all(jar.is_file() for jar in named)
    assert len(named) == len(list(Path(pyspark.__file__).parent.glob("jars/*.jar")))
    assert named[0].name.startswith("slf4j-api-")
    assert named[1:] == sorted(named[1:])
    assert path_jar.stat().st_mtime == 315_532_800, "the date that layers of images give every file"


def test_the_base_image_copies_all_files_that_create_the_archive(tmp_path: Path) -> None:
    """The image build creates the archive before it copies the rest of the engine."""
    for name in ARCHIVE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "runtime" / name, tmp_path / name)
    command = [
        sys.executable,
        "-c",
        "import penstock.jobmanager.cluster.jvm.class_archive as made; print(made.__file__)",
    ]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(str(tmp_path)), done.stderr
