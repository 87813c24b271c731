"""The installed files match the hashes of the locks, and images list their content."""

from __future__ import annotations

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest

from tools.images.wheels import BUILD_LOCK, REPOSITORY, locked

LOCKS = [
    REPOSITORY / "requirements.lock",
    BUILD_LOCK,
    *(REPOSITORY / "tools" / name for name in ("docs.lock", "go.lock")),
]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_of_a_lock_has_hashes(lock: Path) -> None:
    entries = locked(lock)
    assert entries
    for name, entry in entries.items():
        assert re.match(rf"{name}==[\w.!+]+ \\\n( +--hash=sha256:[0-9a-f]{{64}}( \\)?\n)+$", entry, re.IGNORECASE), (
            entry
        )


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_names_no_registry(lock: Path) -> None:
    assert "://" not in lock.read_text()
    assert "index" not in lock.read_text()


def test_the_build_uses_the_locked_tools() -> None:
    wanted = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["build-system"]["requires"]
    tools = locked(BUILD_LOCK)
    for requirement in wanted:
        assert tools[requirement.partition("==")[0]].startswith(requirement)
    assert {"pip", "setuptools", "wheel"} <= tools.keys()


def test_everything_is_installed_with_hashes() -> None:
    script = (REPOSITORY / "tools" / "setup.sh").read_text()
    for line in script.splitlines():
        if "pip install" in line and "-e ." not in line:
            assert "--require-hashes" in line, line
    for image in ("base", "operator"):
        dockerfile = (REPOSITORY / "images" / image / "Dockerfile").read_text()
        assert "--require-hashes" in dockerfile
        assert "sbom.cdx.json" in dockerfile


def test_a_bill_of_materials_lists_the_installed_packages() -> None:
    sbom = runpy.run_path(str(REPOSITORY / "images" / "base" / "sbom.py"))
    status = "Package: zlib1g\nStatus: install ok installed\nVersion: 1:1.2.13\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    components = [
        *sbom["python_packages"](),
        *sbom["debian_packages"](status),
        *sbom["java_runtime"]('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.2"\n'),
    ]
    found = sbom["bill"]("penstock-base", components)
    purls = {component["purl"] for component in found["components"]}
    assert {"pkg:deb/debian/zlib1g@1%3A1.2.13", "pkg:generic/openjdk@17.0.2"} <= purls
    assert any(purl.startswith("pkg:pypi/msgspec@") for purl in purls)
    assert not any("gone" in purl for purl in purls)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found == sbom["bill"]("penstock-base", components[::-1])
    assert json.loads(json.dumps(found)) == found
    assert sys.version_info >= (3, 11)
