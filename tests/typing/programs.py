"""Programs as a type checker sees them; never run. `R:` the type it reveals, `E:` the error it must find in that line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import reveal_type

from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.columns import col, mean
from penstock.datastream.functions import FilterFunction, FlatMapFunction, MapFunction
from penstock.datastream.window import TumblingEventTimeWindows


@dataclass
class Reading:
    station: str
    celsius: float


class Fahrenheit(MapFunction[Reading, float]):
    def map(self, value: Reading) -> float:
        return value.celsius * 9 / 5 + 32


class Letters(FlatMapFunction[str, str]):
    def flat_map(self, value: str) -> Iterator[str]:
        yield from value


class Long(FilterFunction[str]):
    def filter(self, value: str) -> bool:
        return len(value) > 3


class Untyped(MapFunction):
    def map(self, value):  # type: ignore[no-untyped-def]
        return value


def program() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    readings = env.from_collection([Reading("KJFK", 21.5)])
    reveal_type(readings)  # R: DataStream[Reading]
    reveal_type(readings.map(lambda r: r.celsius))  # R: DataStream[float]
    reveal_type(readings.map(Fahrenheit()).uid("fahrenheit").rebalance())  # R: DataStream[float]
    reveal_type(readings.map(Untyped()))  # R: DataStream[Any]
    reveal_type(readings.map(lambda r: r, output_type=Reading))  # R: DataStream[Any]
    reveal_type(readings.filter(lambda r: r.celsius > 20).filter(col("celsius") > 20))  # R: DataStream[Reading]
    reveal_type(readings.flat_map(lambda r: [r.station, "x"]).flat_map(Letters()).filter(Long()))  # R: DataStream[str]
    reveal_type(readings.gather(32, 50).flat_map(lambda rs: [r.celsius for r in rs]))  # R: DataStream[float]
    readings.map(lambda r: r.kelvin)  # E: "Reading" has no attribute "kelvin"
    readings.map(Letters())  # E: No overload variant
    readings.map(Fahrenheit()).filter(Long())  # E: Argument 1 to "filter"
    readings.union(readings.map(Fahrenheit()))  # E: has incompatible type "Fahrenheit"

    by_station = readings.key_by(lambda r: r.station)
    reveal_type(by_station)  # R: KeyedStream[Reading, str]
    reveal_type(readings.key_by("station"))  # R: KeyedStream[Reading, Any]
    reveal_type(by_station.reduce(lambda a, b: a if a.celsius > b.celsius else b))  # R: DataStream[Reading]
    reveal_type(by_station.max("celsius"))  # R: DataStream[Reading]
    reveal_type(by_station.agg(mean("celsius")))  # R: DataStream[tuple[Any, ...]]
    by_station.reduce(lambda a, b: a.celsius)  # E: Argument 1 to "reduce"

    windows = by_station.window(TumblingEventTimeWindows.of(1000))
    reveal_type(windows.reduce(lambda a, b: b))  # R: DataStream[Reading]
    reveal_type(windows.max("celsius"))  # R: DataStream[Reading]
    readings.window(TumblingEventTimeWindows.of(1000))  # E: has no attribute "window"
