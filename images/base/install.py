"""Install Penstock's wheel below a separate root, with its Java classes and byte code.

Run as ``python install.py WHEEL ROOT``. Without the compiled Java classes, every JobManager would compile them at its
start. The engine uses the jar beside their sources.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from slim import write_byte_code

EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The date of every file in the jar, so that the same sources give the same bytes."""


def main(wheel: Path, root: Path) -> None:
    pip = Path(sys.prefix) / "pip.whl" / "pip"
    install = [
        "install",
        "--no-compile",
        "--no-deps",
        "--no-index",
        "--no-warn-script-location",
        "--root",
        str(root),
        str(wheel),
    ]
    subprocess.run([sys.executable, str(pip), *install], check=True)
    installed = root / sysconfig.get_paths()["purelib"].lstrip("/")
    for record in installed.glob("*.dist-info/direct_url.json"):
        record.unlink()
    sys.path.insert(0, str(installed))
    if importlib.util.find_spec("pyspark"):
        package_classes(installed / "penstock")
    write_byte_code(installed, str(root))


def package_classes(package: Path) -> None:
    """Compile the engine's Java sources into a jar beside them."""
    from pyspark.java_gateway import launch_gateway

    from penstock.jobmanager.cluster.jvm import classes

    # a build container may not be able to resolve its own name
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    gateway = launch_gateway()
    try:
        built = classes.build_jar(gateway)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
    beside = Path(classes.__file__).parent / built.name
    with zipfile.ZipFile(built) as archive, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as jar:
        for name in sorted(archive.namelist()):
            jar.writestr(zipfile.ZipInfo(name, EARLIEST), archive.read(name))
    # remove the byte code of the import above: all modules are compiled together
    for cache in package.rglob("__pycache__"):
        shutil.rmtree(cache)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
