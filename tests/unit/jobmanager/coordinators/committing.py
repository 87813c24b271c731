"""A sink with a committer that the test controls, and a graph that ends with the sink."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext

NO_FILES: Any = SimpleNamespace(files=None, spark=None)


class Into(Sink):
    """A sink that writes nothing.

    Each attempt gets the next of these committers, and all later attempts the last one.
    """

    def __init__(self, *committers: Committer) -> None:
        self.committers = list(committers)

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        raise NotImplementedError("the tests drive only the committers of this sink")

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        return self.committers.pop(0) if len(self.committers) > 1 else self.committers[0]


def graph_of(sink: Sink) -> Any:
    """Return a graph with the sink, whose uid and name are `out`."""
    return SimpleNamespace(operators=[SimpleNamespace(uid="out", name="out", user_location="job.py:7", sink=sink)])
