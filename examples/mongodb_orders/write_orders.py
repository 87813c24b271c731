"""Write customers and COUNT orders.

python write_orders.py COUNT
"""

from __future__ import annotations

import os
import sys

from pymongo import MongoClient, ReplaceOne

COUNTRIES = ("NL", "BE", "DE")


def main(count: int) -> None:
    with MongoClient(os.environ.get("MONGODB_URL", "mongodb://localhost:27017/")) as client:
        shop = client["shop"]
        customers = [{"_id": f"c{n}", "country": COUNTRIES[n % 3]} for n in range(15)]
        shop["customers"].bulk_write(
            [ReplaceOne({"_id": customer["_id"]}, customer, upsert=True) for customer in customers]
        )
        shop["orders"].insert_many([{"customer": f"c{n % 16}", "cents": 100 + n} for n in range(count)])


if __name__ == "__main__":
    main(int(sys.argv[1]))
