"""Write readings for the examples into the topic `readings`.

python write_readings.py [COUNT [PER_SECOND]]

Without a rate, the program writes all of them at once.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

from confluent_kafka import Producer


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    producer = Producer({"bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")})
    chance = random.Random(1)
    began = time.time()
    for number in range(count):
        if rate:
            time.sleep(max(0.0, began + number / rate - time.time()))
        moment = time.time() if rate else began - (count - number) / 1000
        sensor = f"s{chance.randrange(20)}"
        reading = {"sensor": sensor, "time": int(moment * 1000), "celsius": round(chance.gauss(28, 4), 1)}
        producer.produce("readings", json.dumps(reading), sensor)
        producer.poll(0)
    producer.produce("readings", "no reading")
    print(f"{count} readings written, {producer.flush(30)} left")


if __name__ == "__main__":
    main()
