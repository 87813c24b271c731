"""The build contexts: directories that hold all that a Dockerfile of ``images/`` copies.

A context is made anew under ``build/images/`` for every build, of hard links where it can be; any builder can take it:
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

EXTRAS = {"base": ("runtime",), "operator": ("operator", "otel")}
"""Which of Penstock's extras an image has."""
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
"""What makes the archive of Spark's classes: it is made anew when one of these changes, and not with all of the engine."""


def make(image: str) -> Path:
    """Make the context of ``base`` or ``operator``; return its directory."""
    collected = wheels.collect(*EXTRAS[image])
    context = REPOSITORY / "build" / "images" / image
    shutil.rmtree(context, ignore_errors=True)
    (context / "wheels").mkdir(parents=True)
    for wheel in collected.glob("*.whl"):
        _link(wheel, context / "wheels" / wheel.name)
    shutil.copy(collected / "requirements.txt", context)
    # slim.py and install.py are the base image's; the operator's is built in the same way
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
