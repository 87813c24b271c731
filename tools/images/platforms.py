"""The platforms of an image, and the checks that a builder can build for them.

An image for several platforms is a list of manifests. The steps of another architecture run in an emulator, which the
kernel calls by binfmt_misc. No Dockerfile under ``images/`` names an architecture. Only the wheels differ.
"""

from __future__ import annotations

import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.errors import ToolError

BINFMT = Path("/proc/sys/fs/binfmt_misc")
_EMULATION = "install an emulator: docker run --privileged --rm tonistiigi/binfmt --install {arch}, or the package qemu-user-static"


@dataclass(frozen=True)
class Platform:
    """An operating system and an architecture."""

    name: str
    machine: str
    """The architecture as Linux and the names of wheels spell it."""

    @property
    def arch(self) -> str:
        return self.name.partition("/")[2]


PLATFORMS = (Platform("linux/amd64", "x86_64"), Platform("linux/arm64", "aarch64"))


def parse_platforms(text: str) -> tuple[Platform, ...]:
    """Return the platforms in a list such as ``linux/amd64,linux/arm64``.

    >>> [found.machine for found in parse_platforms("linux/arm64, linux/amd64")]
    ['aarch64', 'x86_64']
    """
    known = {found.name: found for found in PLATFORMS}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise ToolError(f"no image can be built for {', '.join(unknown)}", remedy=f"choose from {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names))


def check_builder(builder: str, platforms: tuple[Platform, ...], registry: str) -> None:
    """Raise ``ToolError`` with the remedy if the builder cannot build for the platforms."""
    if builder == "docker":
        _check_buildx(platforms)
        if "." not in registry.partition("/")[0] and ":" not in registry.partition("/")[0]:
            raise ToolError(
                "docker pushes an image for several platforms to a registry, and none is set",
                remedy="set REGISTRY, such as registry.example.com/penstock, or use BUILDER=podman",
            )
    else:
        _check_emulation(platforms)


def _check_buildx(platforms: tuple[Platform, ...]) -> None:
    done = subprocess.run(["docker", "buildx", "inspect", "--bootstrap"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(
            f"docker buildx does not work: {(done.stderr or done.stdout).strip()[:300]}",
            remedy="install the plugin buildx, then: docker buildx create --use",
        )
    supported = set(re.findall(r"linux/[a-z0-9]+", "".join(re.findall(r"Platforms:.*", done.stdout))))
    missing = [found for found in platforms if found.name not in supported]
    if missing:
        raise ToolError(
            f"the current builder of docker buildx cannot build for {', '.join(found.name for found in missing)}",
            remedy=_EMULATION.format(arch=missing[0].arch),
        )
    if re.search(r"^Driver:\s+docker$", done.stdout, re.MULTILINE):
        raise ToolError(
            "the current builder of docker buildx has the driver docker, which builds for one platform",
            remedy="docker buildx create --use",
        )


def _check_emulation(platforms: tuple[Platform, ...]) -> None:
    """Check for emulators in this kernel. On other systems than Linux, podman's machine has them."""
    if platform.system() != "Linux":
        return
    for wanted in platforms:
        handlers = (BINFMT / f"qemu-{wanted.machine}", BINFMT / wanted.machine)
        if wanted.machine != platform.machine() and not any(handler.exists() for handler in handlers):
            raise ToolError(
                f"this machine is {platform.machine()}, and no emulator for {wanted.name} is installed",
                remedy=_EMULATION.format(arch=wanted.arch),
            )


def command(builder: str, name: str, platforms: tuple[Platform, ...], options: list[str], directory: str) -> list[str]:
    """Return the command that builds an image for all platforms.

    docker pushes the image to its registry. podman and buildah make a list of manifests on this machine.
    """
    wanted = ["--platform", ",".join(found.name for found in platforms)]
    if builder == "docker":
        return ["docker", "buildx", "build", "--push", "--tag", name, *wanted, *options, directory]
    cached = ["--layers"] if builder == "buildah" else []  # podman always caches
    return [builder, "build", "--manifest", name, *wanted, *cached, *options, directory]


def is_native(platforms: tuple[Platform, ...]) -> bool:
    """Return whether these platforms are only the one of this machine."""
    return all(found.machine == platform.machine() for found in platforms)
