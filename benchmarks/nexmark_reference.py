"""The exact results of the Nexmark queries, by DuckDB on the same events.

    PYTHONHASHSEED=0 python -m benchmarks.nexmark_reference QUERY DATA

A run is compared with the number of results and the sum of their hashes. The programs' workers compute the same hashes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import duckdb

_STRUCTS = {
    "person": "STRUCT(id BIGINT, name VARCHAR, city VARCHAR, state VARCHAR, date_time BIGINT)",
    "auction": (
        "STRUCT(id BIGINT, item_name VARCHAR, date_time BIGINT, expires BIGINT, seller BIGINT, category BIGINT)"
    ),
    "bid": "STRUCT(auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, date_time BIGINT, extra VARCHAR)",
}
_RANKED = "price < 10000", "price >= 10000 and price < 1000000", "price >= 1000000"
_DAY = "date_time // 86400000"
_WINNERS = (
    "select a.id, a.seller, a.category, b.bidder, b.price, b.date_time from auction a join bid b on a.id = b.auction "
    "where b.date_time between a.date_time and a.expires "
    "qualify row_number() over (partition by a.id order by b.price desc, b.date_time) = 1"
)
_RANK_COUNTS = ", ".join(f"count(*) filter (where {rank})" for rank in _RANKED)


def _distinct(field: str) -> str:
    ranks = ", ".join(f"count(distinct {field}) filter (where {rank})" for rank in _RANKED)
    return f"count(distinct {field}), {ranks}"


_STATISTICS = f"count(*), {_RANK_COUNTS}, {_distinct('bidder')}, {_distinct('auction')}"

QUERIES = {
    "q0": "select auction, bidder, price, date_time, extra from bid",
    "q1": "select auction, bidder, 0.908::double * price, date_time, extra from bid",
    "q2": "select auction, price from bid where auction % 123 = 0",
    "q3": (
        "select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id "
        "where a.category = 10 and p.state in ('OR', 'ID', 'CA')"
    ),
    "q4": f"select category, avg(price) from ({_WINNERS}) group by 1",
    "q5": (
        "with counts as (select auction, count(*) c, date_time // 2000 * 2000 - k * 2000 s from bid, range(5) r(k) "
        "group by 1, 3) select auction, c, s, s + 10000 from counts qualify c = max(c) over (partition by s)"
    ),
    "q7": (
        "select auction, price, bidder, date_time from bid "
        "qualify price = max(price) over (partition by date_time // 10000)"
    ),
    "q8": (
        "select p.id, p.name, p.date_time // 10000 * 10000 from person p where exists (select 1 from auction a "
        "where a.seller = p.id and a.date_time // 10000 = p.date_time // 10000)"
    ),
    "q9": _WINNERS,
    "q11": (
        "with gaps as (select *, date_time - lag(date_time) over (partition by bidder order by date_time) > 10000 g "
        "from bid), sessions as (select *, sum(case when g then 1 else 0 end) "
        "over (partition by bidder order by date_time) n from gaps) "
        "select bidder, count(*), min(date_time), max(date_time) + 10000 from sessions group by bidder, n"
    ),
    "q13": (
        "select auction, bidder, price, date_time, value from bid "
        "join read_csv('{side}', columns = {{'key': 'BIGINT', 'value': 'VARCHAR'}}, header = false) s "
        "on auction % 10000 = s.key"
    ),
    "q15": f"select {_DAY}, {_STATISTICS} from bid group by 1",
    "q16": f"select channel, {_DAY}, {_STATISTICS}, max(date_time) // 60000 from bid group by 1, 2",
    "q17": (
        f"select auction, {_DAY}, count(*), {_RANK_COUNTS}, min(price), max(price), avg(price), sum(price)::bigint "
        "from bid group by 1, 2"
    ),
    "q18": (
        "select bidder, auction, price, date_time from bid "
        "qualify row_number() over (partition by bidder, auction order by date_time desc) = 1"
    ),
    "q19": (
        "select auction, row_number() over (partition by auction order by price desc, date_time) r, price, date_time, "
        "bidder from bid qualify r <= 10"
    ),
    "q20": (
        "select b.auction, b.bidder, b.price, b.date_time, a.item_name, a.seller, a.category, a.expires "
        "from bid b join auction a on a.id = b.auction where a.category = 10"
    ),
}


def expected(query: str, data: Path) -> list[tuple[Any, ...]]:
    """Return the results of a query."""
    columns = ", ".join(f"{name}: '{struct}'" for name, struct in _STRUCTS.items())
    with duckdb.connect(config={"threads": 1}) as db:
        db.execute(
            f"create table events as select * from read_json('{data}/events/*.jsonl', format='newline_delimited', "
            f"columns={{event_type: 'INT', {columns}}})"
        )
        for number, name in enumerate(_STRUCTS):
            db.execute(f"create view {name} as select unnest({name}) from events where event_type = {number}")
        return db.execute(
            QUERIES[query].replace("{side}", f"{data}/side/side.csv").replace("{{", "{").replace("}}", "}")
        ).fetchall()


def summary(results: list[tuple[Any, ...]]) -> dict[str, int]:
    return {"count": len(results), "hash": sum(map(hash, results))}


if __name__ == "__main__":
    print(json.dumps(summary(expected(sys.argv[1], Path(sys.argv[2])))))
