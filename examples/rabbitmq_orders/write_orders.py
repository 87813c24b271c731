"""Create the example's queues, and write orders into the queue `orders`: python write_orders.py [COUNT].

The queue `totals` is bound to the exchange of the totals.
"""

from __future__ import annotations

import json
import os
import random
import sys
import uuid

import pika


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    connection = pika.BlockingConnection(pika.URLParameters(os.environ.get("RABBITMQ_URI", "amqp://localhost")))
    channel = connection.channel()
    for name in ("orders", "totals"):
        channel.queue_declare(name, durable=True)
    channel.queue_bind("totals", "amq.topic", "totals.#")
    channel.confirm_delivery()
    chance = random.Random(1)
    for _ in range(count):
        order = {"customer": f"c{chance.randrange(20)}", "cents": chance.randrange(100, 10_000)}
        about = pika.BasicProperties(correlation_id=str(uuid.uuid4()), delivery_mode=2)
        channel.basic_publish("", "orders", json.dumps(order).encode(), about, mandatory=True)
    connection.close()
    print(f"{count} orders written")


if __name__ == "__main__":
    main()
