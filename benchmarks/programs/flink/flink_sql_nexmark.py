"""The Nexmark queries in Flink SQL, into a black hole, without Python code."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from flink_settings import flink_configuration
from flink_times import log_into, run_times

EVENTS = """CREATE TABLE events (
  event_type INT, `time` BIGINT,
  person ROW<id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, state STRING, date_time BIGINT, extra STRING>,
  auction ROW<id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, date_time BIGINT,
    expires BIGINT, seller BIGINT, category BIGINT, extra STRING>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING>,
  rt AS TO_TIMESTAMP_LTZ(`time`, 3), WATERMARK FOR rt AS rt
) WITH ('connector'='filesystem','path'='file://{data}/events','format'='json')"""
VIEWS = (
    "CREATE VIEW person AS SELECT person.id, person.name, person.city, person.state, person.date_time, rt "
    "FROM events WHERE event_type = 0",
    "CREATE VIEW auction AS SELECT auction.id, auction.item_name, auction.date_time, auction.expires, auction.seller, "
    "auction.category, rt FROM events WHERE event_type = 1",
    "CREATE VIEW bid AS SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.date_time, bid.extra, rt "
    "FROM events WHERE event_type = 2",
    "CREATE TABLE side (`key` BIGINT, `value` STRING) WITH ('connector'='filesystem','path'='file://{data}/side','format'='csv')",
)
_RANKED = "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000"
_DAY = "date_time / 86400000"
_COUNTS = "COUNT(*), " + ", ".join(f"COUNT(*) FILTER (WHERE {rank})" for rank in _RANKED)


def _distinct(field: str) -> str:
    ranks = ", ".join(f"COUNT(DISTINCT {field}) FILTER (WHERE {rank})" for rank in _RANKED)
    return f"COUNT(DISTINCT {field}), {ranks}"


_STATISTICS = f"{_COUNTS}, {_distinct('bidder')}, {_distinct('auction')}"
_WINNERS = (
    "SELECT id, seller, category, bidder, price, bid_time FROM (SELECT a.id, a.seller, a.category, b.bidder, b.price, "
    "b.date_time AS bid_time, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS n "
    "FROM auction a JOIN bid b ON a.id = b.auction WHERE b.date_time BETWEEN a.date_time AND a.expires) WHERE n = 1"
)
_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(rt), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(rt), INTERVAL '10' SECOND))"
QUERIES = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": (
        "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')"
    ),
    "q4": (
        "SELECT category, AVG(final) FROM (SELECT MAX(b.price) AS final, a.category FROM auction a, bid b "
        "WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) GROUP BY category"
    ),
    "q5": (
        "SELECT x.auction, x.num, x.starttime, x.endtime FROM (SELECT auction, COUNT(*) AS num, window_start AS starttime, "
        f"window_end AS endtime FROM {_HOP} GROUP BY auction, window_start, window_end) x JOIN (SELECT MAX(num) AS most, "
        "starttime, endtime FROM (SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime "
        f"FROM {_HOP} GROUP BY auction, window_start, window_end) GROUP BY starttime, endtime) y "
        "ON x.starttime = y.starttime AND x.endtime = y.endtime AND x.num >= y.most"
    ),
    "q7": (
        "SELECT b.auction, b.price, b.bidder, b.date_time FROM bid b JOIN (SELECT MAX(price) AS most, window_end AS until "
        f"FROM {_TUMBLE.format('bid')} GROUP BY window_start, window_end) w ON b.price = w.most "
        "AND b.rt BETWEEN w.until - INTERVAL '10' SECOND AND w.until"
    ),
    "q8": (
        "SELECT p.id, p.name, p.starttime FROM (SELECT id, name, window_start AS starttime, window_end AS endtime "
        f"FROM {_TUMBLE.format('person')} GROUP BY id, name, window_start, window_end) p JOIN (SELECT seller, "
        f"window_start AS starttime, window_end AS endtime FROM {_TUMBLE.format('auction')} "
        "GROUP BY seller, window_start, window_end) a "
        "ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime"
    ),
    "q9": _WINNERS,
    "q11": (
        "SELECT bidder, COUNT(*), window_start, window_end FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, "
        "DESCRIPTOR(rt), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end"
    ),
    "q13": (
        "SELECT b.auction, b.bidder, b.price, b.date_time, s.`value` FROM bid b JOIN side s ON MOD(b.auction, 10000) = s.`key`"
    ),
    "q15": f"SELECT {_DAY}, {_STATISTICS} FROM bid GROUP BY {_DAY}",
    "q16": f"SELECT channel, {_DAY}, {_STATISTICS}, MAX(date_time) / 60000 FROM bid GROUP BY channel, {_DAY}",
    "q17": (
        f"SELECT auction, {_DAY}, {_COUNTS}, MIN(price), MAX(price), AVG(price), SUM(price) FROM bid GROUP BY auction, {_DAY}"
    ),
    "q18": (
        "SELECT bidder, auction, price, date_time FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction "
        "ORDER BY rt DESC) AS n FROM bid) WHERE n <= 1"
    ),
    "q19": (
        "SELECT auction, n, price, date_time, bidder FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction "
        "ORDER BY price DESC) AS n FROM bid) WHERE n <= 10"
    ),
    "q20": (
        "SELECT b.auction, b.bidder, b.price, b.date_time, a.item_name, a.seller, a.category, a.expires "
        "FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10"
    ),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("query", choices=list(QUERIES))
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--out", required=True)
    options = arguments.parse_args()
    out, data = Path(options.out).resolve(), Path(options.data).resolve()
    log_into(out / "log")
    from pyflink.table import EnvironmentSettings, TableEnvironment

    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(flink_configuration(out)).build()
    )
    tables.get_config().set("table.local-time-zone", "UTC")
    tables.execute_sql(EVENTS.replace("{data}", str(data)))
    for view in VIEWS:
        tables.execute_sql(view.replace("{data}", str(data)))
    tables.execute_sql(f"CREATE TABLE results WITH ('connector'='blackhole') AS {QUERIES[options.query]}").wait()
    ended = time.time()
    result = run_times(out / "log")
    print("RESULT " + json.dumps({**result, "end": result["end"] or ended}))


if __name__ == "__main__":
    main()
