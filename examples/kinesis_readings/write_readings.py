"""Create the example's streams and write COUNT readings.

python write_readings.py COUNT
"""

from __future__ import annotations

import json
import sys

from botocore.session import get_session


def main(count: int) -> None:
    client = get_session().create_client("kinesis")  # endpoint, region and keys from the environment
    for name in ("readings", "means"):
        client.create_stream(StreamName=name, ShardCount=2)
        client.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 1})
    readings = [
        {"sensor": f"s{n % 5}", "time": 1764000000000 + 250 * n, "celsius": 20 + n % 7 / 2} for n in range(count)
    ]
    for begin in range(0, count, 100):
        records = [
            {"Data": json.dumps(reading).encode(), "PartitionKey": reading["sensor"]}
            for reading in readings[begin : begin + 100]
        ]
        client.put_records(StreamName="readings", Records=records)


if __name__ == "__main__":
    main(int(sys.argv[1]))
