"""Writes readings for the example into the topic `readings`: python write_readings.py [COUNT]."""

from __future__ import annotations

import json
import os
import random
import sys
import time

from confluent_kafka import Producer


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    producer = Producer({"bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")})
    chance = random.Random(1)
    begin = int(time.time() * 1000) - count
    for number in range(count):
        sensor = f"s{chance.randrange(20)}"
        reading = {"sensor": sensor, "time": begin + number, "celsius": round(chance.gauss(28, 4), 1)}
        producer.produce("readings", json.dumps(reading), sensor)
    producer.produce("readings", "no reading")
    print(f"{count} readings written, {producer.flush(30)} left")


if __name__ == "__main__":
    main()
