"""A Spark with Delta Lake and Iceberg that runs the statements of its input lines: {"sql": ...} -> {"rows": [...]} or {"error": ...}.

python program.py JARS FOLDER [CATALOG_URI]
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(jars: str, folder: str, catalog: str = "") -> None:
    settings = {
        "spark.jars": ",".join(map(str, sorted(Path(jars).glob("*.jar")))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": f"{folder}/spark-warehouse",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
    }
    if catalog:
        settings |= {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "rest",
            "spark.sql.catalog.lake.uri": catalog,
            "spark.sql.catalog.lake.cache-enabled": "false",
        }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print("READY", flush=True)
    for line in sys.stdin:
        try:
            rows = [row.asDict(recursive=True) for row in spark.sql(json.loads(line)["sql"]).collect()]
            answer: dict[str, object] = {"rows": rows}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:4000]}
        print("ANSWER " + json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
