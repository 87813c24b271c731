"""Undeclared types that cannot be stored or sent are refused at the first value, with operator, line and remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from penstock.common import Types
from penstock.common.errors import StateTypeError
from penstock.datastream import BroadcastProcessFunction, KeyedProcessFunction
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.testing import JobHarness
from tests.in_process import environment
from tests.integration.engine.programs.refusals import refused


class Opaque:
    def __repr__(self) -> str:
        return "Opaque()"


@dataclass(frozen=True)
class Frozen:
    id: int


class Keeps(KeyedProcessFunction):
    """A function that stores an `Opaque` as a value, or as a key of a map."""

    def __init__(self, where: str) -> None:
        self.where = where

    def open(self, ctx: Any) -> None:
        self.value = ctx.get_state(ValueStateDescriptor("value"))
        self.map = ctx.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        if self.where == "value":
            self.value.update(Opaque())
        elif self.where == "map value":
            self.map.put(1, Opaque())
        elif self.where == "map key":
            self.map.put(Opaque(), 1)
        else:
            self.value.update(1)
        yield 1


class IgnoresBroadcast(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        yield 1

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(1, Opaque())


RULES = MapStateDescriptor("rules")


@pytest.mark.parametrize("where", ["value", "map value", "map key"])
def test_rocksdb_refuses_the_first_value(where: str) -> None:
    with JobHarness(backend="rocksdb") as harness:
        harness.collect(harness.source("numbers").key_by(lambda n: n).process(Keeps(where)), "out")
        harness.push("numbers", 1)
        with pytest.raises(StateTypeError, match="Opaque") as caught:
            harness.outputs("out")
    assert caught.value.operator == "Keyed Process"
    assert __file__ in caught.value.location
    assert "declare the type" in caught.value.remedy


@pytest.mark.parametrize("where", ["value", "map value", "map key", "key"])
def test_hashmap_refuses_the_value_at_the_first_checkpoint_without_a_restart(tmp_path: Path, where: str) -> None:
    env = environment(tmp_path, **{"execution.checkpointing.interval": "20 ms"})
    numbers = env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers")
    keyed = numbers.key_by(lambda n: Frozen(n) if where == "key" else n)
    keyed.process(Keeps(where)).name("keeps").print()
    refusal = refused(env)
    assert refusal.code == "STATE_TYPE"
    assert "Frozen" in refusal.text if where == "key" else "Opaque" in refusal.text
    assert "operator: keeps" in refusal.text
    assert f"at: {__file__}:" in refusal.text
    assert "declare the type" in refusal.text


def test_broadcast_state_refuses_the_value_at_the_first_checkpoint(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"execution.checkpointing.interval": "20 ms"})
    numbers = env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers")
    numbers.connect(numbers.broadcast(RULES)).process(IgnoresBroadcast(), Types.LONG()).name("hears").print()
    refusal = refused(env)
    assert (refusal.code, refusal.operator) == ("STATE_TYPE", "hears")
    assert refusal.points_to(__file__)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("exchange", ["rebalance", "broadcast", "global_", "key_by"])
def test_a_record_that_cannot_be_sent_is_refused(exchange: str, parallelism: int) -> None:
    with JobHarness(parallelism) as harness:
        pairs = harness.source("numbers").map(lambda n: (n, Lock() if n == 2 else None))
        sent = pairs.key_by(lambda pair: pair[0]) if exchange == "key_by" else getattr(pairs, exchange)()
        harness.collect(sent.map(len), "out")
        harness.push("numbers", 1, 2, 3)
        with pytest.raises(StateTypeError, match=r"a tuple cannot be sent to another subtask: \(2, <.*lock") as caught:
            harness.outputs("out")
    assert caught.value.operator == "Map"
    assert __file__ in caught.value.location
    assert "pickle supports" in caught.value.remedy
