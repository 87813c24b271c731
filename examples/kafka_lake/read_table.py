"""Read the example's table: python read_table.py [--lake URL --catalog-uri URI]."""

from __future__ import annotations

import argparse
import os

import duckdb
from job import TABLE, catalog_of
from pyiceberg.catalog import load_catalog


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--lake", default="build/kafka-lake", help="folder of the tables, as a path or URL")
    arguments.add_argument(
        "--catalog-uri", default="", help="URI of the catalog's database (default: SQLite in the folder)"
    )
    options = arguments.parse_args()
    properties = {"type": "sql", "uri": options.catalog_uri, "warehouse": options.lake}
    if "AWS_ENDPOINT_URL" in os.environ:
        properties |= {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": os.environ["AWS_REGION"]}
    catalog = load_catalog("lake", **(properties if options.catalog_uri else catalog_of(options.lake, "")))
    minutes = catalog.load_table(TABLE).scan().to_arrow()
    assert minutes is not None
    print(duckdb.sql("select * from minutes order by minute desc, sensor limit 5"))
    print(
        duckdb.sql(
            "select count(*) as rows, count(distinct (sensor, minute)) as minutes, sum(readings) as readings from minutes"
        )
    )


if __name__ == "__main__":
    main()
