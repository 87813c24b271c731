"""A program is built once, also with concurrent callers, and again when an input of its bytes changes.

A script that counts its calls replaces ``go``, because the compiler is not under test.
"""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING

import pytest

from tools.errors import BuildFailed
from tools.gobuild import GoModule, go_version, module_source

if TYPE_CHECKING:
    from pathlib import Path

GO = """#!/bin/sh
if [ "$1" = env ]; then echo "${FAKE_GO_VERSION:-go1.26.0}"; exit; fi
if [ "$1" = mod ]; then echo "$FAKE_GO_MODULE"; exit "${FAKE_GO_EXIT:-0}"; fi
echo "$*" >> "$FAKE_GO_CALLS"
while [ "$1" != -o ]; do shift; done
sleep 0.2
[ "$3" = ./broken ] && { echo "syntax error in broken"; exit 1; }
echo program > "$2"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoModule:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(GO)
    (tools / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_GO_CALLS", str(tmp_path / "calls"))
    source = tmp_path / "module"
    source.mkdir()
    (source / "go.mod").write_text("module m\n")
    (source / "go.sum").write_text("")
    return GoModule(source, {"one": "./one", "two": "./two", "broken": "./broken"})


def calls(module: GoModule) -> int:
    record = module.directory.parent / "calls"
    return len(record.read_text().splitlines()) if record.exists() else 0


def test_program_is_built_once(module: GoModule) -> None:
    directory = module.ensure(["one"])
    assert (directory / "one").read_text() == "program\n"
    assert module.ensure(["one"]) == directory
    assert calls(module) == 1


def test_only_missing_programs_are_built(module: GoModule) -> None:
    module.ensure(["one"])
    module.ensure(["one", "two"])
    assert calls(module) == 2


def test_concurrent_callers_build_once(module: GoModule) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        directories = set(pool.map(lambda _: module.ensure(["one"]), range(4)))
    assert len(directories) == 1
    assert calls(module) == 1


def test_a_go_that_is_too_old_is_skipped(module: GoModule, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "site" / "go"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "bin" / "go").write_text(GO.replace("go1.26.0", "go1.27.3").replace("FAKE_GO_VERSION", "NONE"))
    (package / "bin" / "go").chmod(0o755)
    monkeypatch.syspath_prepend(str(package.parent))
    for version, used in (("go1.19.8", "go1.27.3"), ("go1.21.0", "go1.21.0"), ("devel", "devel")):
        monkeypatch.setenv("FAKE_GO_VERSION", version)
        assert go_version() == used
    assert (module.ensure(["one"]) / "one").exists()


def test_a_new_pin_source_version_or_flag_gives_a_new_program(
    module: GoModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {module.bin_dir()}
    (module.directory / "go.sum").write_text("other")
    seen.add(module.bin_dir())
    (module.directory / "cmd").mkdir()
    (module.directory / "cmd" / "main.go").write_text("package main")
    seen.add(module.bin_dir())
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.27.0")
    seen.add(module.bin_dir())
    seen.add(GoModule(module.directory, module.programs, ldflags="-w").bin_dir())
    assert len(seen) == 5


def test_a_failed_build_reports_the_reason_and_leaves_nothing(module: GoModule) -> None:
    with pytest.raises(BuildFailed, match=r"broken could not be built.*\n.*syntax error in broken"):
        module.ensure(["broken"])
    assert list(module.bin_dir().iterdir()) == []
    assert [path.name for path in module.bin_dir().parent.iterdir() if path.is_dir()] == [module.bin_dir().name]


def test_go_beside_the_python_packages_is_found_if_it_is_not_on_the_path(
    module: GoModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packages" / "go"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "tools" / "go").rename(package / "bin" / "go")
    with pytest.raises(BuildFailed, match="go is not on the PATH"):
        module.ensure()
    monkeypatch.syspath_prepend(package.parent)
    assert (module.ensure(["one"]) / "one").exists()


def test_the_files_of_a_module_match_their_pin(
    module: GoModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_MODULE", f'{{"Dir": "{tmp_path}", "Sum": "h1:good"}}')
    assert module_source("example.com/m", "v1.0.0", "h1:good") == tmp_path
    with pytest.raises(BuildFailed, match="checksum h1:good instead of h1:pinned"):
        module_source("example.com/m", "v1.0.0", "h1:pinned")
    monkeypatch.setenv("FAKE_GO_MODULE", '{"Error": "timeout"}')
    monkeypatch.setenv("FAKE_GO_EXIT", "1")
    with pytest.raises(BuildFailed, match=r"example.com/m@v1.0.0 could not be fetched: timeout"):
        module_source("example.com/m", "v1.0.0", "h1:good")
