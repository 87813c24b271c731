"""Build the images with buildah on a machine without a registry.

``chroot`` isolation needs no container runtime. Builds share cached layers. All layers have one fixed date, so that the
same inputs give the same layers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING

from tools.devcluster.preflight import apt_install
from tools.errors import BuildFailed, ToolError
from tools.gobuild import file_lock
from tools.images import context, rootfs
from tools.images.platforms import Platform, check_builder, command, is_native
from tools.images.wheels import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

BASE = "localhost/penstock-base:dev"
OPERATOR = "localhost/penstock-operator:dev"
ROOTFS = "localhost/penstock-debian"
REGISTRY = "penstock"
DEBIAN = "docker.io/library/debian:bookworm-slim"

UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}

_BUILDAH = {"BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}
PACKAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}


def build_base(*, tag: str = BASE, base_image: str | None = None) -> str:
    """Build the base of the jobs' images, and return its name.

    ``base_image`` is a Debian 12 image or one built from it. The default is a root file system that is made here.
    """
    return _build("base", tag, base_image)


def build_operator(*, tag: str = OPERATOR, base_image: str | None = None) -> str:
    """Build the operator's image, and return its name. ``base_image`` has the same meaning as in ``build_base``."""
    return _build("operator", tag, base_image)


def build_job(directory: Path, *, tag: str, base_image: str = BASE) -> str:
    """Build the image of the job in ``directory``, and return its name.

    The build uses the directory's Dockerfile, or the template ``images/job/Dockerfile`` if it has none. Raises ``BuildFailed``
    with the end of buildah's output if the build fails.
    """
    if not directory.is_dir():
        raise ToolError(f"{directory} is not a directory", remedy="pass the directory that holds job.py")
    own = directory / "Dockerfile"
    dockerfile = own if own.exists() else REPOSITORY / "images" / "job" / "Dockerfile"
    _install_missing()
    _run_build(directory, dockerfile, tag, {"BASE_IMAGE": base_image})
    return tag


def build_release(builder: str = "", registry: str = REGISTRY, platforms: tuple[Platform, ...] = ()) -> list[str]:
    """Build the base and the operator's image with the names of a release, and return the names.

    Args:
        builder: docker, podman or buildah. Default: the first one that works here. buildah is installed if necessary.
        registry: the first part of the names. The default gives the names that the chart uses.
        platforms: the platforms of each image. Default: an ordinary image for this machine.

    Raises:
        ToolError: the builder does not work, or not for these platforms, or the build fails.
    """
    used = builder or _working_builder()
    if platforms:
        _require(used)
        check_builder(used, platforms, registry)
    version = _project_version()
    names = []
    for image in ("base", "operator"):
        name = f"{registry}/{image}:{version}"
        if used == "buildah" and not platforms:
            _build(image, name, None)
        else:
            base = debian() if used == "buildah" and is_native(platforms) else DEBIAN
            arguments = {"BASE_IMAGE": base, "VERSION": version, "REVISION": _revision()}
            options = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
            if platforms:
                made = str(context.make(image, tuple(found.machine for found in platforms)))
                _forget(used, name)
                _run(command(used, name, platforms, options, made), name)
            else:
                _run([used, "build", "--tag", name, *options, str(context.make(image))], name)
        names.append(name)
    return names


def _working_builder() -> str:
    """Return docker if its daemon responds, else podman if it is installed, else buildah."""
    if shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0:
        return "docker"
    return "podman" if shutil.which("podman") else "buildah"


def _run(arguments: list[str], name: str) -> None:
    """Run a builder, with its output on the terminal."""
    _require(arguments[0])
    environment = {**os.environ, **_BUILDAH} if arguments[0] == "buildah" else None
    if subprocess.run(arguments, env=environment, check=False).returncode:
        raise BuildFailed(f"{arguments[0]} cannot build {name}", remedy="read the output of the builder above")


def _forget(builder: str, name: str) -> None:
    """Remove an image or a list of images with this name. podman and buildah would add to an existing list, and refuse
    to make a list if an image has its name.
    """
    if builder != "docker":
        for arguments in (["manifest", "rm", name], ["rmi", name]):
            subprocess.run(
                [builder, *arguments], env={**os.environ, **_BUILDAH}, capture_output=True, check=False
            )  # fails if the name does not exist


def _require(builder: str) -> None:
    if builder == "buildah":
        _install_missing()
    if shutil.which(builder) is None:
        raise ToolError(
            f"{builder} is not installed", remedy="install it, or choose another builder: docker, podman, buildah"
        )


def tag(name: str, other: str) -> str:
    """Give an image a second name, and return that name."""
    _buildah("tag", name, other)
    return other


def debian(*, fresh: bool = False) -> str:
    """Return the image that has only the root file system. Import it if it is missing, and make it again if ``fresh``."""
    _install_missing()
    archive = rootfs.ensure(fresh=fresh)
    name = f"{ROOTFS}:{archive.stem}"
    with file_lock(archive.with_suffix(".lock")):
        if fresh or not is_built(name):
            container = _buildah("from", "scratch")
            try:
                _buildah("add", "--quiet", container, str(archive), "/")
                _buildah("config", "--cmd", "/bin/bash", container)
                _buildah("commit", "--quiet", "--timestamp", rootfs.EPOCH, container, name)
            finally:
                _buildah("rm", container, check=False)
    return name


def image_id(name: str) -> str:
    """Return the digest of an image's configuration. It changes with every build that changes something."""
    return _buildah("inspect", "--type", "image", "--format", "{{.FromImageID}}", name)


def size(name: str) -> int:
    """Return the bytes of an image's unpacked layers, as ``buildah images`` counts them."""
    listed: list[dict[str, str]] = json.loads(_buildah("images", "--json", name))
    number, unit = listed[0]["size"].split()
    return int(float(number) * UNITS[unit])


def _build(image: str, tag: str, base_image: str | None) -> str:
    directory = context.make(image)
    base = base_image or debian()
    arguments = {"BASE_IMAGE": base, "VERSION": _project_version(), "REVISION": _revision()}
    _install_missing()
    _run_build(directory, directory / "Dockerfile", tag, arguments)
    return tag


def _run_build(directory: Path, dockerfile: Path, tag: str, arguments: dict[str, str]) -> None:
    options = ["--layers", "--timestamp", rootfs.EPOCH, "--file", str(dockerfile), "--tag", tag]
    if arguments["BASE_IMAGE"].startswith("localhost/"):
        options.append("--pull-never")
    options += [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
    _buildah("build", *options, str(directory))


def _project_version() -> str:
    return str(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"])


def _revision() -> str:
    """Return the commit of the clone."""
    result = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False
    )
    return result.stdout.strip() or "unknown"


def is_built(name: str) -> bool:
    """Return whether an image of this name exists."""
    return shutil.which("buildah") is not None and _buildah("images", "--quiet", name, check=False) != ""


def _install_missing() -> None:
    missing = sorted(package for program, package in PACKAGES.items() if shutil.which(program) is None)
    if missing and shutil.which("apt-get") and os.geteuid() == 0:
        apt_install(missing)
    elif missing:
        raise BuildFailed(f"missing: {', '.join(missing)}", remedy=f"install {' '.join(missing)} (Debian packages)")


def _buildah(*arguments: str, check: bool = True) -> str:
    """Run buildah and return its output."""
    done = subprocess.run(
        ["buildah", *arguments],
        env={**os.environ, **_BUILDAH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if check else subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if done.returncode and check:
        raise BuildFailed(
            f"buildah {arguments[0]} failed:\n{done.stdout[-4000:]}",
            remedy="read the end of its output above",
        )
    return done.stdout.strip()
