"""The Nexmark queries as Penstock programs.

    python penstock_nexmark.py q5 --data DIR --out DIR [--runner pipelined] [--slots 2]

Results that are never retracted (`APPENDED`) are counted and hashed. Other results are emitted again at every
change, and the last one of each key counts (`UPSERTED`). Both go to `DIR/summary-N.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

from nexmark_functions import (
    DAY_MS,
    Auction,
    AuctionStatistics,
    Bid,
    Count,
    Event,
    ExpandedBids,
    Highest,
    Hottest,
    LastBid,
    LocalItems,
    MeanPrice,
    Person,
    SideInput,
    Statistics,
    TopTen,
    Winners,
    WithWindow,
)

from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.data_stream import DataStream
from penstock.datastream.formats.json import JsonLinesFormat
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows

TEN_SECONDS, TWO_SECONDS = timedelta(seconds=10), timedelta(seconds=2)


class NotedJsonLines(JsonLinesFormat):
    """A format of JSON lines whose readers record their start."""

    def __init__(self, folder: str) -> None:
        self.folder = ""
        super().__init__(Event)
        self.folder = folder

    def decoder(self, header: bytes) -> Any:
        if self.folder:
            Path(self.folder, f"begin-{os.getpid()}-{time.time_ns()}").touch()
        return super().decoder(header)


@dataclass(frozen=True)
class Site:
    """The source of the events."""

    env: StreamExecutionEnvironment
    data: str
    out: str

    def events(self) -> DataStream:
        source = FileSource.for_record_stream_format(NotedJsonLines(self.out), f"{self.data}/events").build()
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
        return self.env.from_source(source, strategy, "events")

    def bids(self) -> DataStream:
        return bids_of(self.events())


def bids_of(events: DataStream) -> DataStream:
    return events.filter(lambda event: event.event_type == 2).map(lambda event: event.bid, output_type=Bid)


def auctions_of(events: DataStream) -> DataStream:
    return events.filter(lambda event: event.event_type == 1).map(lambda event: event.auction, output_type=Auction)


def people_of(events: DataStream) -> DataStream:
    return events.filter(lambda event: event.event_type == 0).map(lambda event: event.person, output_type=Person)


def q0(site: Site) -> DataStream:
    return site.bids().map(lambda bid: (bid.auction, bid.bidder, bid.price, bid.date_time, bid.extra))


def q1(site: Site) -> DataStream:
    return site.bids().map(lambda bid: (bid.auction, bid.bidder, 0.908 * bid.price, bid.date_time, bid.extra))


def q2(site: Site) -> DataStream:
    return site.bids().filter(lambda bid: bid.auction % 123 == 0).map(lambda bid: (bid.auction, bid.price))


def q3(site: Site) -> DataStream:
    events = site.events()
    auctions = auctions_of(events).filter(lambda auction: auction.category == 10)
    people = people_of(events).filter(lambda person: person.state in ("OR", "ID", "CA"))
    both = auctions.connect(people).key_by(lambda auction: auction.seller, lambda person: person.id)
    return both.process(LocalItems())


def winners(site: Site) -> DataStream:
    events = site.events()
    both = auctions_of(events).connect(bids_of(events))
    return both.key_by(lambda auction: auction.id, lambda bid: bid.auction).process(Winners())


def q4(site: Site) -> DataStream:
    return winners(site).key_by(itemgetter(2)).process(MeanPrice())


def q5(site: Site) -> DataStream:
    counts = (
        site.bids()
        .key_by(lambda bid: bid.auction)
        .window(SlidingEventTimeWindows.of(TEN_SECONDS, TWO_SECONDS))
        .aggregate(Count(), WithWindow())
    )
    return counts.key_by(itemgetter(3)).window(TumblingEventTimeWindows.of(TWO_SECONDS)).process(Hottest())


def q7(site: Site) -> DataStream:
    highest = site.bids().window_all(TumblingEventTimeWindows.of(TEN_SECONDS)).aggregate(Highest())
    return highest.flat_map(lambda bids: bids)


def q8(site: Site) -> DataStream:
    events = site.events()
    people, auctions = people_of(events), auctions_of(events)

    def new_seller(people: list[Person], auctions: list[Auction]) -> list[Any]:
        if not auctions:
            return []
        return [(person.id, person.name, person.date_time // 10_000 * 10_000) for person in people]

    joined = people.co_group(auctions).where(lambda person: person.id).equal_to(lambda auction: auction.seller)
    return joined.window(TumblingEventTimeWindows.of(TEN_SECONDS)).apply(new_seller)


def q9(site: Site) -> DataStream:
    return winners(site)


def q11(site: Site) -> DataStream:
    by_bidder = site.bids().key_by(lambda bid: bid.bidder)
    return by_bidder.window(EventTimeSessionWindows.with_gap(TEN_SECONDS)).aggregate(Count(), WithWindow())


def q13(site: Site) -> DataStream:
    return site.bids().map(SideInput(f"{site.data}/side/side.csv"))


def q15(site: Site) -> DataStream:
    statistics = site.bids().key_by(lambda bid: bid.date_time // DAY_MS).process(Statistics())
    return statistics.map(lambda one: (one[0], *one[1][:12]))


def q16(site: Site) -> DataStream:
    statistics = site.bids().key_by(lambda bid: (bid.channel, bid.date_time // DAY_MS)).process(Statistics())
    return statistics.map(lambda one: (*one[0], *one[1][:12], one[1][12] // 60_000))


def q17(site: Site) -> DataStream:
    return site.bids().key_by(lambda bid: (bid.auction, bid.date_time // DAY_MS)).process(AuctionStatistics())


def q18(site: Site) -> DataStream:
    return site.bids().key_by(lambda bid: (bid.bidder, bid.auction)).process(LastBid())


def q19(site: Site) -> DataStream:
    return site.bids().key_by(lambda bid: bid.auction).process(TopTen())


def q20(site: Site) -> DataStream:
    events = site.events()
    both = auctions_of(events).connect(bids_of(events))
    return both.key_by(lambda auction: auction.id, lambda bid: bid.auction).process(ExpandedBids())


QUERIES: dict[str, Callable[[Site], DataStream]] = {
    query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q13, q15, q16, q17, q18, q19, q20)
}
UPSERTED = {"q4": 1, "q15": 1, "q16": 2, "q17": 2, "q18": 2, "q19": 2}
"""Number of fields in a result's key."""


class SummarySink(Sink):
    """A sink that writes a summary of each subtask to a file: the number and the sum of hashes of the results.

    For keyed results, only the last one of each key counts.
    """

    def __init__(self, folder: str, key_fields: int) -> None:
        self.folder = folder
        self.key_fields = key_fields

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return SummaryWriter(Path(self.folder, f"summary-{context.subtask}.json"), self.key_fields)


class SummaryWriter(SinkWriter):
    def __init__(self, path: Path, key_fields: int) -> None:
        self._path = path
        self._key_fields = key_fields
        self._count = self._hash = 0
        self._last: dict[Any, Any] = {}

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self._count += len(values)
        if not self._key_fields:
            self._hash += sum(map(hash, values))
        elif self._key_fields == 1:
            self._last.update([(value[0], value) for value in values])
        else:
            self._last.update([(value[:2], value) for value in values])

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        return []

    def finish(self) -> None:
        final = len(self._last) if self._key_fields else self._count
        digest = sum(map(hash, self._last.values())) if self._key_fields else self._hash
        self._path.write_text(json.dumps({"count": final, "hash": digest, "emitted": self._count}))


def build(env: StreamExecutionEnvironment, query: str, data: str, out: str) -> None:
    """Build the job of a query."""
    QUERIES[query](Site(env, data, out)).sink_to(SummarySink(out, UPSERTED.get(query, 0)))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("query", choices=list(QUERIES))
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--runner", default="auto")
    arguments.add_argument("--slots", type=int, default=2)
    options = arguments.parse_args()
    out = Path(options.out).resolve()
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", (out / "checkpoints").as_uri())
    configuration.set_string("restart-strategy.type", "none")
    configuration.set_string("penstock.epoch.target", "1s")
    configuration.set_string("penstock.runner", options.runner)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(options.slots)
    env.enable_checkpointing(1000)
    build(env, options.query, options.data, str(out))
    env.execute(options.query)
    end = time.time()
    summaries = [json.loads(path.read_text()) for path in out.glob("summary-*.json")]
    begin = min(int(path.name.rpartition("-")[2]) for path in out.glob("begin-*")) / 1e9
    found = {name: sum(summary[name] for summary in summaries) for name in ("count", "hash", "emitted")}
    print("RESULT " + json.dumps({"begin": begin, "end": end, **found}), flush=True)


if __name__ == "__main__":
    main()
