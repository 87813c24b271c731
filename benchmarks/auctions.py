"""The input of `nexmark`: people, auctions and bids of an auction site, as in the Nexmark benchmark, the same for every system.

    {"event_type":2,"time":1700000000012,"bid":{"auction":1003,"bidder":1001,"price":842,"channel":"Apple",...}}

One event in fifty is a new person, three are auctions, the rest are bids. Half of the bids are for the latest hot auction, and
three of four come from the latest hot bidder. The events are in order, with 1,000 events per second of event time. Each file gets
1,000,000 events in turn, so that both files reach the same time at the same place. All random values come from a seed.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

SEED = 42
EVENTS_PER_SECOND = 1000
EPOCH_MS = 1_700_000_000_000
FILES = 2
TURN = 1000
CHUNK = 50_000
SIDE_INPUT_ROWS = 10_000

PEOPLE, AUCTIONS, BIDS = 1, 3, 46
_OF = PEOPLE + AUCTIONS + BIDS
_FIRST_ID = 1000
_HOT_STRETCH = 100
_ACTIVE_PEOPLE = 1000
_OPEN_AUCTIONS = 100
_CATEGORIES = 5
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_OTHER_CHANNELS = 10_000
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")


def lines(begin: int, end: int) -> list[str]:
    """Return the events with these numbers. `begin` is a multiple of `CHUNK`, so that a chunk always has the same events."""
    rng = np.random.Generator(np.random.PCG64([SEED, begin]))
    count = end - begin
    hot = rng.integers(0, 4, (count, 2)).tolist()
    near = rng.random((count, 2)).tolist()
    price = np.round(10 ** (rng.random((count, 2)) * 6) * 100).astype(np.int64).tolist()
    pick = rng.integers(0, 1 << 30, (count, 5)).tolist()
    return [_line(begin + n, *drawn) for n, drawn in enumerate(zip(hot, near, price, pick, strict=True))]


def _line(number: int, hot: list[int], near: list[float], price: list[int], pick: list[int]) -> str:
    time = EPOCH_MS + number * 1000 // EVENTS_PER_SECOND
    round_, place = divmod(number, _OF)
    extra = f"{pick[3]:x}{pick[4]:x}" * 3
    if place < PEOPLE:
        first, last = _FIRST_NAMES[pick[0] % len(_FIRST_NAMES)], _LAST_NAMES[pick[1] % len(_LAST_NAMES)]
        return (
            f'{{"event_type":0,"time":{time},"person":{{"id":{_FIRST_ID + round_},"name":"{first} {last}",'
            f'"email":"{first}.{last}@{pick[2]:x}.com","credit_card":"{pick[2] % 10**4:04d} {pick[3] % 10**4:04d}",'
            f'"city":"{_CITIES[pick[3] % len(_CITIES)]}","state":"{_STATES[pick[4] % len(_STATES)]}",'
            f'"date_time":{time},"extra":"{extra}"}}}}\n'
        )
    newest = round_
    if place < PEOPLE + AUCTIONS:
        seller = (
            newest // _HOT_STRETCH * _HOT_STRETCH if hot[0] else newest - int(near[0] * min(newest + 1, _ACTIVE_PEOPLE))
        )
        expires = time + 1 + int(near[1] * 2 * _OPEN_AUCTIONS * _OF * 1000 / AUCTIONS / EVENTS_PER_SECOND)
        return (
            f'{{"event_type":1,"time":{time},"auction":{{"id":{_FIRST_ID + round_ * AUCTIONS + place - PEOPLE},'
            f'"item_name":"item {pick[0]:x}","description":"{extra}","initial_bid":{price[0]},"reserve":{price[0] + price[1]},'
            f'"date_time":{time},"expires":{expires},"seller":{_FIRST_ID + seller},"category":{10 + pick[1] % _CATEGORIES},'
            f'"extra":"{extra}"}}}}\n'
        )
    last_auction = round_ * AUCTIONS + AUCTIONS - 1
    auction = (
        last_auction // _HOT_STRETCH * _HOT_STRETCH
        if hot[0] % 2
        else last_auction - int(near[0] * min(last_auction + 1, _OPEN_AUCTIONS))
    )
    bidder = (
        newest // _HOT_STRETCH * _HOT_STRETCH + 1 if hot[1] else newest - int(near[1] * min(newest + 1, _ACTIVE_PEOPLE))
    )
    channel = _HOT_CHANNELS[pick[1] % 4] if pick[0] % 2 else f"channel-{pick[1] % _OTHER_CHANNELS}"
    return (
        f'{{"event_type":2,"time":{time},"bid":{{"auction":{_FIRST_ID + auction},"bidder":{_FIRST_ID + bidder},'
        f'"price":{price[0]},"channel":"{channel}","url":"https://www.nexmark.com/{pick[2]:x}/item.htm?query=1",'
        f'"date_time":{time},"extra":"{extra}"}}}}\n'
    )


def prepare(events: int, root: Path) -> Path:
    """Return the folder with this number of events, and generate it if it is missing.

    `events/part-N.jsonl`: the files; `side/side.csv`: the side input of q13.
    """
    folder = root / f"nexmark-{events}"
    if folder.exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".nexmark-", dir=root))
    (building / "events").mkdir()
    (building / "side").mkdir()
    parts = [(building / "events" / f"part-{n}.jsonl").open("w", buffering=1 << 20) for n in range(FILES)]
    for begin in range(0, events, CHUNK):
        chunk = lines(begin, min(begin + CHUNK, events))
        for turn in range(0, len(chunk), TURN):
            parts[(begin + turn) // TURN % FILES].writelines(chunk[turn : turn + TURN])
    for part in parts:
        part.close()
    rows = "".join(f"{key},value-{key * 7919 % SIDE_INPUT_ROWS}\n" for key in range(SIDE_INPUT_ROWS))
    (building / "side" / "side.csv").write_text(rows)
    (building / "shape.json").write_text(json.dumps({"events": events, "seed": SEED}))
    try:
        building.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(building)
    os.utime(folder)
    return folder
