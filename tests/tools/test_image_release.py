"""The builder of the images of a release: docker, podman or buildah."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tools.errors import BuildFailed, ToolError
from tools.images import build, context

if TYPE_CHECKING:
    from pathlib import Path

VERSION = build._project_version()
FAKE = """#!/usr/bin/env python3
import json, sys
with open({log!r}, "a") as log:
    print(json.dumps(sys.argv), file=log)
sys.exit({code} if sys.argv[1] == {failing!r} else 0)
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the calls of the builders. No builder is installed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(context, "make", lambda image: tmp_path / f"context-{image}")
    monkeypatch.setattr(build, "_revision", lambda: "abc")
    return tmp_path / "log"


def install(log: Path, name: str, failing: str = "") -> None:

    program = log.parent / "bin" / name
    program.write_text(
        FAKE.format(log=str(log), code=1, failing=failing).replace("/usr/bin/env python3", sys.executable)
    )
    program.chmod(0o755)


def calls(log: Path) -> list[list[str]]:
    return [json.loads(line)[1:] for line in log.read_text().splitlines()]


def test_docker_builds_both_images_with_the_names_of_the_chart(log: Path) -> None:
    install(log, "docker")
    install(log, "podman")
    assert build.build_release() == [f"penstock/base:{VERSION}", f"penstock/operator:{VERSION}"]
    info, base, operator = calls(log)
    assert info == ["info"]
    assert base[:3] == ["build", "--tag", f"penstock/base:{VERSION}"]
    assert base[-1].endswith("context-base")
    assert f"BASE_IMAGE={build.DEBIAN}" in base
    assert "REVISION=abc" in operator


def test_podman_builds_if_dockers_daemon_does_not_respond(log: Path) -> None:
    install(log, "docker", failing="info")
    install(log, "podman")
    build.build_release(registry="registry.example.com/team")
    assert [call[:3] for call in calls(log)][1:] == [
        ["build", "--tag", f"registry.example.com/team/{image}:{VERSION}"] for image in ("base", "operator")
    ]


def test_buildah_builds_if_nothing_else_works(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[str, str, str | None]] = []
    monkeypatch.setattr(build, "_build", lambda *arguments: built.append(arguments))
    build.build_release()
    assert built == [("base", f"penstock/base:{VERSION}", None), ("operator", f"penstock/operator:{VERSION}", None)]


def test_a_builder_that_is_missing_or_fails_is_named(log: Path) -> None:
    with pytest.raises(ToolError, match="podman is not installed"):
        build.build_release("podman")
    install(log, "podman", failing="build")
    with pytest.raises(BuildFailed, match="podman cannot build penstock/base"):
        build.build_release("podman")
