"""Records with field names are written by name. Builders do not modify the caller's options."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from cassandra import cqltypes

from penstock.connectors.cassandra.records import values_of
from penstock.connectors.cassandra.scalars import Misfit
from penstock.connectors.cassandra.values import _adapter
from penstock.datastream.connectors.cassandra import CassandraSink, MapperOptions


class Hour(NamedTuple):
    hour: int
    station: int


def test_named_tuples_are_written_by_field_name() -> None:
    assert list(values_of(["station", "hour"])(Hour(hour=1, station=2))) == [2, 1]
    assert values_of(["station", "hour"])((2, 1)) == (2, 1)
    with pytest.raises(Misfit, match="it has no field 'celsius'"):
        values_of(["celsius", "hour"])(Hour(hour=1, station=2))


def test_named_tuples_fill_user_defined_types_by_field_name() -> None:
    kind = cqltypes.UserType.make_udt_class("w", "spot", ("station", "hour"), (cqltypes.Int32Type, cqltypes.Int32Type))
    adapt = _adapter(kind)
    assert adapt is not None
    assert adapt(Hour(hour=1, station=2)) == adapt((2, 1)) == (2, 1)


class Stream:
    def sink_to(self, sink: Any) -> Any:
        self.sink = sink
        return sink


def test_the_callers_options_are_not_modified() -> None:
    options, found = MapperOptions().ttl(0), []
    for keeps_null in (False, True):
        stream: Any = Stream()
        builder = CassandraSink.add_sink(stream).set_query("INSERT INTO w.t (id) VALUES (?)").set_host("nowhere")
        builder = builder.set_mapper_options(options)
        (builder if keeps_null else builder.enable_ignore_null_fields()).build()
        found.append(stream.sink.options.nulls)
    assert found == [False, True]
    assert repr(options) == "MapperOptions(ttl=0)"
