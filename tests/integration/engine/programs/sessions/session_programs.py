"""Programs for tests of a session cluster, and checks of their output."""

from __future__ import annotations

import json

COUNT = """
import sys
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(range(int(sys.argv[1]))).map(lambda n: (n % 2, n)).key_by(lambda pair: pair[0]).sum(1).print()
env.execute("count")
print("the program has ended")
"""

ENDLESS = """
import json
import pathlib
import sys

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor


class Counts(KeyedProcessFunction):
    def open(self, ctx):
        self.number = ctx.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, n, ctx):
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        yield n, number


env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(300)
numbers = env.from_source(DataGeneratorSource(lambda n: n, None, 200), WatermarkStrategy.no_watermarks(), "numbers")
numbers.uid("numbers").key_by(lambda n: n % 2).process(Counts()).uid("counts").print()
env.execute(sys.argv[1])
"""


def numbers(lines: list[str]) -> list[int]:
    return [json.loads(line.replace("(", "[").replace(")", "]"))[0] for line in lines if line.startswith("(")]


def counts_are_right(lines: list[str]) -> bool:
    """Return whether each record has the count that belongs to it: state and positions are of the same checkpoint."""
    found = [json.loads(line.replace("(", "[").replace(")", "]")) for line in lines if line.startswith("(")]
    return bool(found) and all(number == n // 2 + 1 for n, number in found)
