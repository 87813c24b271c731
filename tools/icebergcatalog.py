"""A real REST catalog of Apache Iceberg on this machine, for tests and development.

Iceberg's own reference server comes as jars (``mavenjars``; Hadoop's are PySpark's) and keeps its tables in SQLite. It is up in some two seconds.

    with IcebergCatalog(tmp_path) as server:
        load_catalog("lake", type="rest", uri=server.url)

From a shell: ``python tools/icebergcatalog.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import httpx

from tools.errors import Unsupported
from tools.mavenjars import MavenJars
from tools.servercommand import ServerCommand
from tools.serverprocess import HOST, ServerProcess, free_port

JARS = MavenJars(Path(__file__).resolve().parent / "icebergcatalog")
READY_TIMEOUT = 120.0


class IcebergCatalog(ServerProcess):
    """Tables are in ``warehouse``, a folder of ``root`` unless another one is given."""

    title = "Iceberg's REST catalog"

    def __init__(self, root: Path, warehouse: Path | None = None) -> None:
        super().__init__(root)
        self.warehouse = warehouse or self.root / "warehouse"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> Self:
        jars = JARS.ensure()
        java = shutil.which("java")
        spark = importlib.util.find_spec("pyspark")
        if java is None or spark is None or spark.origin is None:
            raise Unsupported("there is no java on the PATH, or no PySpark", remedy="install a Java 17, and pyspark")
        hadoop = sorted((Path(spark.origin).parent / "jars").glob("hadoop-client-*.jar"))
        self.warehouse.mkdir(parents=True, exist_ok=True)
        self.root.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+PerfDisableSharedMem"]
        path = ":".join([f"{jars}/*", *map(str, hadoop)])
        settings = {
            "REST_PORT": str(self.port),
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_URI": f"jdbc:sqlite:{self.root / 'catalog.db'}",
            "CATALOG_WAREHOUSE": self.warehouse.as_uri(),
        }
        command = [java, *options, "-cp", path, "org.apache.iceberg.rest.RESTCatalogServer"]
        self._run(command, self._answers, READY_TIMEOUT, settings)
        return self

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/v1/config", timeout=2).is_success
        except httpx.TransportError:
            return False


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = IcebergCatalog(options.state_dir).start()
    assert server.process is not None
    return {"ICEBERG_CATALOG_URI": server.url}, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("icebergcatalog", "A real REST catalog of Iceberg for development.", _start).run())
