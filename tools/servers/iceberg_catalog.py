"""A real REST catalog of Apache Iceberg on this machine, for tests and development.

Iceberg's reference server comes as jars (``mavenjars``), and Hadoop's jars come from PySpark. The server stores the
catalog in SQLite and starts in about two seconds.

    with IcebergCatalog(tmp_path) as server:
        load_catalog("lake", type="rest", uri=server.url)

From a shell: ``python -m tools.servers iceberg_catalog start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from tools.errors import Unsupported
from tools.mavenjars import MavenJars
from tools.servers.base.probes import http_succeeds
from tools.servers.base.process import ServerProcess
from tools.servers.base.programs import java
from tools.servers.base.server import HOST

JARS = MavenJars(Path(__file__).resolve().parent / "artifacts" / "iceberg_catalog")


class IcebergCatalog(ServerProcess):
    """A catalog whose tables are in ``warehouse``, by default a folder of ``root``."""

    title = "Iceberg's REST catalog"
    patience = 120.0

    def __init__(self, root: Path, warehouse: Path | None = None) -> None:
        super().__init__(root)
        self.warehouse = warehouse or self.root / "warehouse"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def exports(self) -> dict[str, str]:
        return {"ICEBERG_CATALOG_URI": self.url}

    def _command(self) -> list[str]:
        spark = importlib.util.find_spec("pyspark")
        if spark is None or spark.origin is None:
            raise Unsupported("PySpark is not installed", remedy="install pyspark")
        hadoop = sorted((Path(spark.origin).parent / "jars").glob("hadoop-client-*.jar"))
        self.warehouse.mkdir(parents=True, exist_ok=True)
        path = ":".join([f"{JARS.ensure()}/*", *map(str, hadoop)])
        return [*java("256m", "-cp", path), "org.apache.iceberg.rest.RESTCatalogServer"]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "REST_PORT": str(self.port),
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_URI": f"jdbc:sqlite:{self.root / 'catalog.db'}",
            "CATALOG_WAREHOUSE": self.warehouse.as_uri(),
        }

    def _responds(self) -> bool:
        return http_succeeds(self.port, "/v1/config")
