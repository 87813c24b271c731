"""The example works as its page describes: its table has the same days as a single pass over the readings."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from tests.examples import EXAMPLES

EXPECTED = """
SELECT origin AS station, CAST(CAST(time_hour AS TIMESTAMPTZ) AT TIME ZONE 'UTC' AS DATE) AS day, avg(celsius) AS mean,
       min(celsius) AS low, max(celsius) AS high, count(*) AS readings
FROM (SELECT *, (CAST(temp AS DOUBLE) - 32) * 5 / 9 AS celsius
      FROM read_csv('{data}/*.csv.gz', nullstr = 'NA', all_varchar = true) WHERE temp IS NOT NULL)
GROUP BY ALL
"""


def table(kind: str, lake: Path) -> Any:
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(lake / "days")).to_pyarrow_table()
    from pyiceberg.catalog import load_catalog

    uri = f"sqlite:///{lake}/catalog.db"
    catalog = load_catalog("lake", type="sql", uri=uri, warehouse=lake.as_uri())
    return catalog.load_table("weather.days").scan().to_arrow()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_days_are_written_to_the_table(kind: str, tmp_path: Path) -> None:
    program = [sys.executable, str(EXAMPLES / "weather_lake" / "job.py"), "--in-process", "--parallelism", "2"]
    subprocess.run([*program, "--format", kind, "--lake", str(tmp_path / "lake")], check=True, timeout=120)
    found = table(kind, tmp_path / "lake").to_pylist()
    with duckdb.connect() as connection:
        rows = connection.execute(EXPECTED.format(data=EXAMPLES / "airport_weather" / "data")).fetchall()
    expected = {(row[0], row[1]): row[2:] for row in rows}
    assert len(found) == len(expected) > 1000
    for row in found:
        mean, low, high, readings = expected[row["station"], row["day"]]
        assert (row["low"], row["high"], row["readings"]) == (low, high, readings)
        assert math.isclose(row["mean"], mean, abs_tol=1e-9)


def test_the_manifest_uses_only_files_of_the_image() -> None:
    folder = EXAMPLES / "weather_lake"
    spec = yaml.safe_load((folder / "flinkjob.yaml").read_text())["spec"]
    image = (folder / "Dockerfile").read_text()
    assert f"COPY weather_lake/{spec['job']['entry']} ./" in image
    assert (EXAMPLES / "airport_weather" / "data").is_dir()
    assert "COPY airport_weather/data ./data" in image
    assert "/opt/job/data" in spec["job"]["args"]
