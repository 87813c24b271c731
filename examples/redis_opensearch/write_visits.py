"""Write descriptions of twenty pages, and add visits to the stream: python write_visits.py [COUNT]."""

from __future__ import annotations

import json
import os
import random
import sys

import redis


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    chance = random.Random(1)
    with redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379")) as client:
        for number in range(20):
            section = ("news", "weather", "sport")[number % 3]
            client.hset(f"page:p{number}", mapping={"title": f"Page {number}", "section": section})
        with client.pipeline(transaction=False) as pipeline:
            for _ in range(count):
                visit = {"page": f"p{chance.randrange(21)}", "seconds": chance.randrange(1, 60)}
                pipeline.xadd("visits", {"value": json.dumps(visit)})
            pipeline.execute()
    print(f"{count} visits written")


if __name__ == "__main__":
    main()
