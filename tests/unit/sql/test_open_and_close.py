"""Functions of the program are opened before their first call and closed at the end, in all operators that call them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.sql.operators.changes import ChangelogNormalizeFunction
from penstock.sql.operators.joins.streams import TRANSLATIONS as JOINS
from penstock.sql.operators.over.streams import TRANSLATIONS as OVER
from penstock.sql.operators.windows.streams import TRANSLATIONS as WINDOWS
from penstock.sql.plan.changes import ChangelogNormalize
from penstock.sql.plan.joins import IntervalJoin, JoinSpec, RegularJoin, TemporalJoin
from penstock.sql.plan.nodes import AggregateCall, Column
from penstock.sql.plan.over import OverAggregate
from penstock.sql.plan.rex import InputRef, UserCall
from penstock.sql.plan.types import SqlType
from penstock.sql.plan.user_functions import UserFunction
from penstock.sql.plan.windows import WindowAggregate, WindowJoin, WindowSpec
from penstock.sql.streams import Inputs, SqlStream
from penstock.testing import JobHarness

INTEGER, STAMP = SqlType("INTEGER"), SqlType("TIMESTAMP", precision=3)
COLUMNS = (Column("k", SqlType("VARCHAR")), Column("n", INTEGER), Column("ts", STAMP, "ROWTIME"))


class Logged:
    """A scalar function and an aggregate function that append their calls to a file."""

    def __init__(self, path):
        self.path = path

    def log(self, call):
        with self.path.open("a") as file:
            file.write(f"{call}\n")

    def open(self, context):
        self.log("open")

    def close(self):
        self.log("close")

    def eval(self, *values):
        self.log("eval")
        return True

    def create_accumulator(self):
        return []

    def accumulate(self, accumulator, *values):
        self.log("eval")

    def retract(self, accumulator, *values):
        pass

    def get_value(self, accumulator):
        return 1


def condition(path):
    return UserCall(UserFunction("f", "scalar", Logged(path)), (InputRef(1, INTEGER),), SqlType("BOOLEAN"))


def join(kind, path):
    spec = JoinSpec("INNER", ((0,), (0,)), (True,), condition(path), (COLUMNS, COLUMNS))
    base = (1, (2, 3), COLUMNS + COLUMNS, "", spec)
    attached = WindowSpec("tumble", 1000, 1000, start_index=2, end_index=2)
    return {
        "regular": lambda: RegularJoin(*base, ((), ()), (0, 0)),
        "semi": lambda: RegularJoin(*base[:4], replace(spec, kind="SEMI"), ((), ()), (0, 0)),
        "interval": lambda: IntervalJoin(*base, -1000, 1000, (2, 2)),
        "temporal": lambda: TemporalJoin(*base, (2, 2), 0),
        "window": lambda: WindowJoin(*base, (attached, attached)),
    }[kind]()


def aggregate(kind, path):
    call = AggregateCall(
        "g", (1,), (INTEGER,), -1, distinct=False, type=INTEGER, user=UserFunction("g", "aggregate", Logged(path))
    )
    base = (1, (2,), COLUMNS, "", (0,), (call,))
    if kind == "over":
        return OverAggregate(*base, 2, True, None, (), 0)
    return WindowAggregate(*base, WindowSpec("tumble", 1000, 1000, time_index=2), (), False)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls"


def run(path, streams, create):
    """Run a job with a row for each of the streams. Return the first two calls of the function, and the last one."""
    with JobHarness() as harness:
        inputs = tuple(SqlStream(harness.source(name), changelog=False) for name in streams)
        harness.collect(create(Inputs(inputs, (COLUMNS,) * len(inputs), "UTC")), "result")
        for name in streams:
            harness.push(name, ("a", 1, 5_000_000))
        for name in streams:
            harness.close(name)
        harness.run()
    found = path.read_text().split()
    return *found[:2], found[-1]


@pytest.mark.parametrize("kind", ["regular", "semi", "interval", "temporal", "window"])
def test_a_join_opens_and_closes_the_functions_of_its_condition(kind, path):
    node = join(kind, path)
    translate = {**JOINS, **WINDOWS}[type(node)]
    found = run(path, ("left", "right"), lambda inputs: translate(inputs, node, "join").stream)
    assert found == ("open", "eval", "close")


@pytest.mark.parametrize("kind", ["tumble", "over"])
def test_a_window_opens_and_closes_aggregate_functions(kind, path):
    node = aggregate(kind, path)
    found = run(path, ("rows",), lambda inputs: {**OVER, **WINDOWS}[type(node)](inputs, node, "window").stream)
    assert found == ("open", "eval", "close")


def test_a_table_of_upserts_opens_and_closes_the_functions_of_its_filter(path):
    node = ChangelogNormalize(1, (2,), COLUMNS, "", (0,), condition(path), True, 0)
    function = ChangelogNormalizeFunction(node, "UTC", changelog=False)
    found = run(path, ("rows",), lambda inputs: inputs.process((0,), function, "Normalize", "normalize"))
    assert found == ("open", "eval", "close")
