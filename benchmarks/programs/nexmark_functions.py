"""The stateful functions of the Nexmark queries, written like those of Penstock's users."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.datastream.functions import (
    AggregateFunction,
    CoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

DAY_MS = 86_400_000


class Person(msgspec.Struct):
    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    date_time: int
    extra: str


class Auction(msgspec.Struct):
    id: int
    item_name: str
    description: str
    initial_bid: int
    reserve: int
    date_time: int
    expires: int
    seller: int
    category: int
    extra: str


class Bid(msgspec.Struct):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: int
    extra: str


class Event(msgspec.Struct):
    event_type: int
    time: int
    person: Person | None = None
    auction: Auction | None = None
    bid: Bid | None = None


def rank_of(price: int) -> int:
    """Return the rank of a price: 0 below 10,000, 1 below 1,000,000, 2 above."""
    return 0 if price < 10_000 else 1 if price < 1_000_000 else 2


class LocalItems(CoProcessFunction):
    """q3: auctions of a person, once both are known."""

    def open(self, runtime_context: Any) -> None:
        self.person = runtime_context.get_state(ValueStateDescriptor("person", tuple[str, str, str]))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", int))

    def process_element1(self, value: Auction, ctx: Any) -> Iterator[Any]:
        person = self.person.value()
        if person is None:
            self.waiting.add(value.id)
        else:
            yield (*person, value.id)

    def process_element2(self, value: Person, ctx: Any) -> Iterator[Any]:
        person = (value.name, value.city, value.state)
        self.person.update(person)
        for auction in self.waiting.get():
            yield (*person, auction)
        self.waiting.clear()


class Winners(CoProcessFunction):
    """q4, q9: the highest bid of an auction, the earliest of equal ones, when the auction is over."""

    def open(self, runtime_context: Any) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", tuple[int, int, int, int]))
        self.best = runtime_context.get_state(ValueStateDescriptor("best", tuple[int, int, int]))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", tuple[int, int, int]))

    def process_element1(self, value: Auction, ctx: Any) -> None:
        self.auction.update((value.date_time, value.expires, value.seller, value.category))
        for bid in self.early.get():
            self.consider(bid, value.date_time, value.expires)
        self.early.clear()
        ctx.timer_service().register_event_time_timer(value.expires)

    def process_element2(self, value: Bid, ctx: Any) -> None:
        auction = self.auction.value()
        bid = (value.price, value.date_time, value.bidder)
        if auction is not None:
            self.consider(bid, auction[0], auction[1])
        elif value.date_time > ctx.timer_service().current_watermark():
            self.early.add(bid)

    def consider(self, bid: tuple[int, int, int], opened: int, expires: int) -> None:
        if opened <= bid[1] <= expires:
            best = self.best.value()
            if best is None or bid[0] > best[0] or (bid[0] == best[0] and bid[1] < best[1]):
                self.best.update(bid)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        best, auction = self.best.value(), self.auction.value()
        if best is not None:
            price, time, bidder = best
            yield ctx.get_current_key(), auction[2], auction[3], bidder, price, time
        self.best.clear()


class MeanPrice(KeyedProcessFunction):
    """q4: the mean of the winning bids of a category so far."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("sum", tuple[int, int]))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        total, count = self.state.value() or (0, 0)
        total, count = total + value[4], count + 1
        self.state.update((total, count))
        yield value[2], total / count


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithWindow(ProcessWindowFunction):
    """q5, q11: key, count, begin and end of the window."""

    def process(self, key: Any, context: Any, elements: Iterable[int]) -> Iterator[Any]:
        window = context.window()
        for count in elements:
            yield key, count, window.start, window.end


class Hottest(ProcessWindowFunction):
    """q5: the auctions with the most bids."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        counts = list(elements)
        most = max(count for _, count, _, _ in counts)
        return (one for one in counts if one[1] == most)


class Highest(AggregateFunction):
    """q7: the bids of the highest price."""

    def create_accumulator(self) -> tuple[int, tuple[Any, ...]]:
        return -1, ()

    def add(self, value: Bid, accumulator: tuple[int, tuple[Any, ...]]) -> tuple[int, tuple[Any, ...]]:
        price, bids = accumulator
        if value.price < price:
            return accumulator
        bid = (value.auction, value.price, value.bidder, value.date_time)
        return (price, (*bids, bid)) if value.price == price else (value.price, (bid,))

    def get_result(self, accumulator: tuple[int, tuple[Any, ...]]) -> tuple[Any, ...]:
        return accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        if acc_a[0] == acc_b[0]:
            return acc_a[0], (*acc_a[1], *acc_b[1])
        return max(acc_a, acc_b, key=lambda accumulator: accumulator[0])


class SideInput(MapFunction):
    """q13: looks up a bid's auction in a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, runtime_context: Any) -> None:
        with open(self.path, newline="") as file:
            self.values = {int(key): value for key, value in csv.reader(file)}

    def map(self, value: Bid) -> Any:
        return value.auction, value.bidder, value.price, value.date_time, self.values[value.auction % 10_000]


class Statistics(KeyedProcessFunction):
    """q15, q16: bids of a day, by price in three ranks; the number of bidders and auctions, of each rank, too."""

    def open(self, runtime_context: Any) -> None:
        self.counts = runtime_context.get_state(ValueStateDescriptor("counts", tuple[int, ...]))
        self.bidders = runtime_context.get_map_state(MapStateDescriptor("bidders", int, int))
        self.auctions = runtime_context.get_map_state(MapStateDescriptor("auctions", int, int))

    def process_element(self, value: Bid, ctx: Any) -> Iterator[Any]:
        counts = list(self.counts.value() or (0,) * 13)
        rank = rank_of(value.price)
        counts[0] += 1
        counts[1 + rank] += 1
        for seen, who, first in ((self.bidders, value.bidder, 4), (self.auctions, value.auction, 8)):
            ranks = seen.get(who) or 0
            if not ranks:
                counts[first] += 1
            if not ranks >> rank & 1:
                counts[first + 1 + rank] += 1
                seen.put(who, ranks | 1 << rank)
        counts[12] = max(counts[12], value.date_time)
        self.counts.update(tuple(counts))
        yield ctx.get_current_key(), counts


class AuctionStatistics(KeyedProcessFunction):
    """q17: bids of an auction and a day: how many, in three ranks, lowest, highest, mean and sum of the prices."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("statistics", tuple[int, ...]))

    def process_element(self, value: Bid, ctx: Any) -> Iterator[Any]:
        price, rank = value.price, rank_of(value.price)
        total, low, middle, high, least, most, added = self.state.value() or (0, 0, 0, 0, price, price, 0)
        state = (
            total + 1,
            low + (rank == 0),
            middle + (rank == 1),
            high + (rank == 2),
            min(least, price),
            max(most, price),
            added + price,
        )
        self.state.update(state)
        yield (*ctx.get_current_key(), *state[:6], state[6] / state[0], state[6])


class LastBid(KeyedProcessFunction):
    """q18: emits a bid if its bidder has no later bid for the same auction."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", int))

    def process_element(self, value: Bid, ctx: Any) -> Iterator[Any]:
        last = self.last.value()
        if last is None or value.date_time >= last:
            self.last.update(value.date_time)
            yield value.bidder, value.auction, value.price, value.date_time


class TopTen(KeyedProcessFunction):
    """q19: the ten highest bids of an auction. It emits every change with its rank."""

    def open(self, runtime_context: Any) -> None:
        self.top = runtime_context.get_state(ValueStateDescriptor("top", tuple[tuple[int, int, int], ...]))

    def process_element(self, value: Bid, ctx: Any) -> Iterator[Any]:
        top = self.top.value() or ()
        bid = (-value.price, value.date_time, value.bidder)
        if len(top) == 10 and bid > top[-1]:
            return
        changed = sorted((*top, bid))[:10]
        self.top.update(tuple(changed))
        for rank in range(changed.index(bid), len(changed)):
            price, time, bidder = changed[rank]
            yield value.auction, rank + 1, -price, time, bidder


class ExpandedBids(CoProcessFunction):
    """q20: bids with their auction, of one category. The category may become known only after the auction's first bids."""

    def open(self, runtime_context: Any) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", tuple[str, int, int, int]))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", tuple[int, int, int]))

    def process_element1(self, value: Auction, ctx: Any) -> Iterator[Any]:
        auction = (value.item_name, value.seller, value.category, value.expires)
        self.auction.update(auction)
        if value.category == 10:
            for bid in self.early.get():
                yield (value.id, *bid, *auction)
        self.early.clear()

    def process_element2(self, value: Bid, ctx: Any) -> Iterator[Any]:
        auction = self.auction.value()
        if auction is None:
            self.early.add((value.bidder, value.price, value.date_time))
        elif auction[2] == 10:
            yield (value.auction, value.bidder, value.price, value.date_time, *auction)
