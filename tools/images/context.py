"""The build contexts: directories that hold all files that a Dockerfile of ``images/`` copies.

Every build makes its context again under ``build/images/``, with hard links where possible. Any builder can use it:
``docker build build/images/base``.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from tools.images import wheels
from tools.images.wheels import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

EXTRAS: dict[str, tuple[str, ...]] = {"base": (), "operator": ("operator", "otel")}
"""The extras of Penstock that each image has."""
WITHOUT_ENGINE = frozenset({"operator"})
"""The images without Spark and the engine's other packages."""
ARCHIVE = (
    "penstock/__init__.py",
    "penstock/common/__init__.py",
    "penstock/common/errors.py",
    "penstock/common/folders/__init__.py",
    "penstock/common/folders/private_folder.py",
    "penstock/common/folders/start_folder.py",
    "penstock/jobmanager/__init__.py",
    "penstock/jobmanager/cluster/jvm/class_archive.py",
    "penstock/jobmanager/cluster/jvm/java.py",
    "penstock/jobmanager/cluster/__init__.py",
    "penstock/jobmanager/cluster/jvm/__init__.py",
    "penstock/jobmanager/cluster/jvm/classes.py",
    "penstock/jobmanager/cluster/jvm/installation.py",
    "penstock/jobmanager/cluster/jvm/classes.txt",
)
"""The files that make the archive of Spark's classes. Only a change of one of them makes a new archive."""


def make(image: str, machines: tuple[str, ...] = ()) -> Path:
    """Make the context of ``base`` or ``operator``, and return its directory.

    The context has wheels for this machine, and for each of ``machines`` (``x86_64``, ``aarch64``).
    """
    collected = wheels.collect(*EXTRAS[image], client=image in WITHOUT_ENGINE, machines=machines)
    context = REPOSITORY / "build" / "images" / image
    shutil.rmtree(context, ignore_errors=True)
    (context / "wheels").mkdir(parents=True)
    for wheel in collected.glob("*.whl"):
        _link(wheel, context / "wheels" / wheel.name)
    shutil.copy(collected / "requirements.txt", context)
    # slim.py and install.py are in the base image's directory, and the build of the operator's image uses them too
    for directory in (REPOSITORY / "images" / "base", REPOSITORY / "images" / image):
        for path in directory.iterdir():
            if path.is_file():
                shutil.copy(path, context)
    if image == "base":
        for name in ARCHIVE:
            target = context / "archive" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / "runtime" / name, target)
    wheels.penstock(context)
    return context


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
