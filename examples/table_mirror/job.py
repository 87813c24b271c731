"""Mirror a Postgres table in an Iceberg table, from its change log, with hidden e-mail addresses.

The README has the commands. The mirror follows each insert, update and delete. A checkpoint is a commit of the Iceberg table.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from penstock.common.types import Row
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import DataStream
from penstock.datastream import StreamExecutionEnvironment as Environment
from penstock.datastream.connectors.iceberg import IcebergSink
from penstock.datastream.connectors.postgres import PostgresCdcSource

COLUMNS = {"id": int, "name": str, "email": str, "country": str}
MIRROR = "crm.customers"


def hide(row: Row) -> Row:
    """Replace the e-mail address by a hash. The kind of the change stays: insert, update or delete."""
    values = row.as_dict()
    if values["email"] is not None:  # a deleted row has only its key
        values["email"] = hashlib.sha256(values["email"].encode()).hexdigest()[:12]
    return Row.of_kind(row.get_row_kind(), **values)


def mirror(changes: DataStream[Row]) -> DataStream[Row]:
    """Build the part of the job between source and sink. The changes of a key stay in order."""
    return changes.key_by(lambda row: row.id).map(hide).name("hide").uid("hide")


def catalog_of(folder: str, uri_file: str) -> dict[str, str]:
    """Return PyIceberg's properties: a catalog in a database whose URI is in a file, or one in SQLite in the folder."""
    if uri_file:
        return {"name": "lake", "type": "sql", "uri.file": uri_file, "warehouse": folder}
    path = Path(folder).resolve()
    path.mkdir(parents=True, exist_ok=True)
    return {"name": "lake", "type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": path.as_uri()}


def build(env: Environment, server: str, password_file: str, catalog: dict[str, str]) -> None:
    """Build the job: the changes of the table -> hidden addresses -> the mirror."""
    source = PostgresCdcSource.builder().set_conninfo(server).set_password_file(password_file)
    source = source.set_table("customers", COLUMNS).set_publication("crm").set_slot_name("table_mirror")
    changes = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "customers").uid("customers")
    sink = IcebergSink(catalog, MIRROR, COLUMNS, key=["id"], deletes=True, create=True)
    mirror(changes).sink_to(sink).name("mirror").uid("mirror")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="postgresql://postgres@localhost/postgres", help="URI of the database")
    parser.add_argument("--password-file", default="", help="file with the password")
    parser.add_argument("--lake", default="build/table-mirror", help="folder of the Iceberg table, as a path or URL")
    parser.add_argument("--catalog-uri-file", default="", help="file with the URI of the catalog's database")
    arguments, _ = parser.parse_known_args()  # the remaining arguments are Penstock's
    env = Environment.get_execution_environment()
    env.enable_checkpointing(5000)
    build(env, arguments.server, arguments.password_file, catalog_of(arguments.lake, arguments.catalog_uri_file))
    env.execute("table-mirror")


if __name__ == "__main__":
    main()
