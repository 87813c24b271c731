"""Print the rows of the mirror: python read_mirror.py [--lake FOLDER]."""

from __future__ import annotations

import argparse

from job import MIRROR, catalog_of
from pyiceberg.catalog import load_catalog


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", default="build/table-mirror", help="folder of the Iceberg table")
    table = load_catalog(**catalog_of(parser.parse_args().lake, "")).load_table(MIRROR)
    for row in sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"])):
        print(row)


if __name__ == "__main__":
    main()
