"""Count per key from topic to topic in Flink SQL with its Kafka connector, exactly once, without Python code."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from flink_settings import flink_configuration
from flink_times import log_into, run_times


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("servers", "reads", "writes", "out", "jars"):
        arguments.add_argument(f"--{name}", required=True)
    arguments.add_argument("--guarantee", default="EXACTLY_ONCE")
    options = arguments.parse_args()
    out = Path(options.out).resolve()
    log_into(out / "log")
    from pyflink.table import EnvironmentSettings, TableEnvironment

    configuration = flink_configuration(out)
    configuration.set_string(
        "pipeline.jars", ";".join(path.as_uri() for path in sorted(Path(options.jars).glob("*.jar")))
    )
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration)
    tables = TableEnvironment.create(settings.build())
    kafka = f"'connector'='kafka','properties.bootstrap.servers'='{options.servers}','format'='json'"
    reads = (
        f"{kafka},'topic'='{options.reads}','scan.startup.mode'='earliest-offset','scan.bounded.mode'='latest-offset'"
    )
    tables.execute_sql(
        f"CREATE TABLE readings (sensor_id STRING, ts BIGINT, temp DOUBLE) WITH ({reads},'properties.group.id'='flink')"
    )
    upserts = (
        f"'connector'='upsert-kafka','properties.bootstrap.servers'='{options.servers}','topic'='{options.writes}'"
    )
    exact = "'sink.delivery-guarantee'='exactly-once','sink.transactional-id-prefix'='flink','properties.transaction.timeout.ms'='600000'"
    tables.execute_sql(
        "CREATE TABLE results (sensor_id STRING, n BIGINT, PRIMARY KEY (sensor_id) NOT ENFORCED) "
        f"WITH ({upserts},'key.format'='json','value.format'='json',{exact})"
    )
    tables.execute_sql("INSERT INTO results SELECT sensor_id, count(*) FROM readings GROUP BY sensor_id").wait()
    ended = time.time()
    result = run_times(out / "log")
    print("RESULT " + json.dumps({**result, "end": result["end"] or ended}))


if __name__ == "__main__":
    main()
