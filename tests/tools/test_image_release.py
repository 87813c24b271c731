"""The builder of the images of a release: docker, podman or buildah."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest

from tools.errors import BuildFailed, ToolError
from tools.images import build, context, platforms, wheels
from tools.images.platforms import parse_platforms

if TYPE_CHECKING:
    from pathlib import Path

VERSION = build._project_version()
FAKE = """#!/usr/bin/env python3
import json, sys
with open({log!r}, "a") as log:
    print(json.dumps(sys.argv), file=log)
if sys.argv[1:3] == ["buildx", "inspect"]:
    print({buildx!r})
sys.exit({code} if sys.argv[1] == {failing!r} else 0)
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the calls of the builders. No builder is installed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(context, "make", lambda image, machines=(): tmp_path / "-".join(["context", image, *machines]))
    monkeypatch.setattr(build, "_revision", lambda: "abc")
    return tmp_path / "log"


BUILDX = "Name: multi\nDriver:        docker-container\nNodes:\nName: multi0\nPlatforms: linux/amd64, linux/amd64/v2, linux/arm64\n"


def install(log: Path, name: str, failing: str = "", buildx: str = BUILDX) -> None:

    program = log.parent / "bin" / name
    program.write_text(
        FAKE.format(log=str(log), code=1, failing=failing, buildx=buildx).replace(
            "/usr/bin/env python3", sys.executable
        )
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


BOTH = parse_platforms("linux/amd64,linux/arm64")


def test_docker_pushes_an_image_for_several_platforms(log: Path) -> None:
    install(log, "docker")
    build.build_release(registry="registry.example.com/team", platforms=BOTH)
    _, _, base, operator = calls(log)
    name = f"registry.example.com/team/base:{VERSION}"
    assert base[:7] == ["buildx", "build", "--push", "--tag", name, "--platform", "linux/amd64,linux/arm64"]
    assert base[-1].endswith("context-base-x86_64-aarch64")
    assert f"BASE_IMAGE={build.DEBIAN}" in operator


@pytest.mark.parametrize(
    ("buildx", "failing", "registry", "message", "remedy"),
    [
        (BUILDX, "buildx", "registry.example.com/team", "docker buildx does not work", "install the plugin buildx"),
        (
            BUILDX.replace(", linux/arm64", ""),
            "",
            "registry.example.com/team",
            "linux/arm64",
            "tonistiigi/binfmt --install arm64",
        ),
        (
            BUILDX.replace("docker-container", "docker"),
            "",
            "registry.example.com/team",
            "driver docker",
            "buildx create --use",
        ),
        (BUILDX, "", "penstock", "to a registry, and none is set", "set REGISTRY"),
    ],
)
def test_docker_without_what_it_needs_is_refused_before_the_build(
    log: Path, buildx: str, failing: str, registry: str, message: str, remedy: str
) -> None:
    install(log, "docker", failing, buildx)
    with pytest.raises(ToolError) as raised:
        build.build_release("docker", registry, BOTH)
    assert message in str(raised.value)
    assert remedy in str(raised.value)
    assert not [call for call in calls(log) if "build" in call[:2] and "--push" in call]


@pytest.mark.parametrize("builder", ["podman", "buildah"])
def test_podman_and_buildah_make_a_list_of_manifests(
    log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, builder: str
) -> None:
    monkeypatch.setattr(platforms, "BINFMT", tmp_path)
    for machine in ("x86_64", "aarch64"):
        (tmp_path / f"qemu-{machine}").touch()
    monkeypatch.setattr(build, "_install_missing", lambda: None)
    install(log, builder)
    build.build_release(builder, platforms=BOTH)
    assert [" ".join(call[:2]) for call in calls(log)[:2]] == ["manifest rm", f"rmi penstock/base:{VERSION}"]
    base, operator = (call for call in calls(log) if call[0] == "build")
    assert base[:5] == ["build", "--manifest", f"penstock/base:{VERSION}", "--platform", "linux/amd64,linux/arm64"]
    assert operator[-1].endswith("context-operator-x86_64-aarch64")


def test_a_machine_without_an_emulator_is_refused(log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platforms, "BINFMT", tmp_path / "none")
    install(log, "podman")
    with pytest.raises(ToolError, match="no emulator for linux/") as raised:
        build.build_release("podman", platforms=BOTH)
    assert "binfmt --install" in str(raised.value)
    assert not log.exists(), "nothing was built"


def test_an_unknown_platform_is_named() -> None:
    with pytest.raises(ToolError, match="no image can be built for linux/s390x"):
        parse_platforms("linux/amd64,linux/s390x")


def test_no_dockerfile_names_an_architecture() -> None:
    for path in sorted((wheels.REPOSITORY / "images").rglob("Dockerfile")):
        found = re.findall(r"amd64|x86[-_]64|arm64|aarch64", path.read_text())
        assert not found, f"{path} would build only one architecture: {found}"


def test_wheels_of_another_architecture_are_pinned_beside_those_of_this_one(tmp_path: Path) -> None:
    for name in ("numpy-2.4-cp311-cp311-manylinux_2_28_x86_64.whl", "numpy-2.4-cp311-cp311-manylinux_2_28_aarch64.whl"):
        (tmp_path / name).write_text(name)
    (tmp_path / "six-1.0-py3-none-any.whl").write_text("six")
    numpy, six = wheels._pins(tmp_path)
    assert numpy.startswith("numpy==2.4 --hash=sha256:")
    assert numpy.count("--hash") == 2
    assert six.count("--hash") == 1


def test_compiled_packages_are_collected_for_another_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in ("numpy-2.4-cp311-cp311-manylinux_2_28_x86_64.whl", "six-1.0-py3-none-any.whl"):
        (folder / name).write_text(name)
    pip_calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(wheels, "_pip", lambda *arguments, path=None: pip_calls.append(arguments))
    wheels._collect_for("aarch64", folder, {"numpy": "numpy==2.4 --hash=sha256:a\n", "six": "six==1.0\n"})
    ((*arguments,),) = pip_calls
    assert "manylinux_2_28_aarch64" in arguments
    assert "manylinux_2_36_aarch64" in arguments, "Debian 12 has glibc 2.36"
    assert "manylinux_2_37_aarch64" not in arguments
    assert (tmp_path / "aarch64.lock").read_text() == "numpy==2.4 --hash=sha256:a\n"
