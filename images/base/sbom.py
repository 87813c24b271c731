"""Write the content of the image as a CycloneDX bill of materials.

Run inside of the image as ``python sbom.py NAME FILE``. It lists Python packages, Debian packages and the Java runtime. The same
content gives the same bytes: the document has no time, and the serial number follows from the content.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

DPKG_STATUS = Path("/var/lib/dpkg/status")
JAVA_RELEASE = Path("/opt/java/release")

Component = dict[str, Any]


def bill(name: str, components: list[Component]) -> dict[str, Any]:
    """Return the document, in the order of the package URLs."""
    ordered = sorted(components, key=lambda component: str(component["purl"]))
    content = json.dumps([name, ordered], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "bom-ref": name}},
        "components": ordered,
    }


def component(kind: str, name: str, version: str, license_text: str = "") -> Component:
    """Return one entry of the bill. ``kind`` is the type in the package URL, such as ``pypi``."""
    purl = f"pkg:{kind}/{quote(name)}@{quote(version)}"
    found: Component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if license_text:
        found["licenses"] = [{"license": {"name": license_text}}]
    return found


def python_packages(path: list[str] | None = None) -> Iterator[Component]:
    seen = set()
    for found in distributions() if path is None else distributions(path=path):
        name = found.metadata["Name"].lower().replace("_", "-")
        if name not in seen:
            seen.add(name)
            license_name = found.metadata.get("License-Expression") or found.metadata.get("License") or ""
            yield component("pypi", name, found.version, license_name if len(license_name) < 100 else "")


def debian_packages(status: str) -> Iterator[Component]:
    """Yield the packages in the text of dpkg's status file."""
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Status", "").endswith(" installed"):
            yield component("deb/debian", fields["Package"], fields["Version"])


def java_runtime(release: str) -> Iterator[Component]:
    """Yield the runtime that the text of its ``release`` file describes."""
    for line in release.splitlines():
        if line.startswith("JAVA_VERSION="):
            yield component("generic", "openjdk", line.partition("=")[2].strip('"'))


def main(name: str, target: Path) -> None:
    components = list(python_packages())
    if DPKG_STATUS.exists():
        components += debian_packages(DPKG_STATUS.read_text())
    if JAVA_RELEASE.exists():
        components += java_runtime(JAVA_RELEASE.read_text())
    target.write_text(json.dumps(bill(name, components), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
