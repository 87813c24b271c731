"""W1, W2 and W3 in Flink SQL, without Python code."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from flink_settings import flink_configuration
from flink_times import log_into, run_times

RESULTS = {
    "w1": ("sensor_id STRING, ts BIGINT, celsius DOUBLE", "blackhole"),
    "w2": ("sensor_id STRING, n BIGINT, highest DOUBLE", "blackhole"),
    "w3": ("sensor_id STRING, begin_ms BIGINT, mean DOUBLE, n BIGINT", "filesystem"),
}
QUERIES = {
    "w1": "SELECT sensor_id, ts, (temp - 32) * 5 / 9 FROM readings WHERE (temp - 32) * 5 / 9 > 20.0",
    "w2": "SELECT sensor_id, count(*), max(temp) FROM readings GROUP BY sensor_id",
    "w3": (
        "SELECT sensor_id, UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, avg(temp), count(*) "
        "FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(happened), INTERVAL '5' SECOND)) "
        "GROUP BY sensor_id, window_start, window_end"
    ),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("workload", choices=list(QUERIES))
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--out", required=True)
    options = arguments.parse_args()
    out = Path(options.out).resolve()
    log_into(out / "log")
    from pyflink.table import EnvironmentSettings, TableEnvironment

    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(flink_configuration(out)).build()
    )
    tables.get_config().set("table.local-time-zone", "UTC")
    event_time = ""
    if options.workload == "w3":
        event_time = ", happened AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR happened AS happened - INTERVAL '10' SECOND"
    files = f"'connector'='filesystem','path'='file://{Path(options.data).resolve()}/big','format'='json'"
    tables.execute_sql(f"CREATE TABLE readings (sensor_id STRING, ts BIGINT, temp DOUBLE{event_time}) WITH ({files})")
    columns, connector = RESULTS[options.workload]
    where = f",'path'='file://{out}/results','format'='csv'" if connector == "filesystem" else ""
    tables.execute_sql(f"CREATE TABLE results ({columns}) WITH ('connector'='{connector}'{where})")
    tables.execute_sql(f"INSERT INTO results {QUERIES[options.workload]}").wait()
    ended = time.time()
    result = run_times(out / "log")
    print("RESULT " + json.dumps({**result, "end": result["end"] or ended}))


if __name__ == "__main__":
    main()
