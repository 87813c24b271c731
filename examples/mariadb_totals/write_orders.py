"""Write orders of nine customers into the example's table: python write_orders.py mysql+pymysql://user@localhost/shop 1000"""

from __future__ import annotations

import random
import sys

import sqlalchemy

CUSTOMERS = ["ann", "bob", "cem", "dor", "eve", "fay", "gil", "hal", "ida"]


def write(server: str, count: int, seed: int = 1) -> None:
    chance = random.Random(seed)
    engine = sqlalchemy.create_engine(server)
    insert = sqlalchemy.text("insert into orders (customer, cents) values (:customer, :cents)")
    for _ in range(count):
        with engine.begin() as connection:
            connection.execute(insert, {"customer": chance.choice(CUSTOMERS), "cents": chance.randrange(100, 10_000)})
    engine.dispose()


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]))
