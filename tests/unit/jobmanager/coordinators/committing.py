"""A sink whose committer a test holds in its hands, and the graph it is the end of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext

NO_FILES: Any = SimpleNamespace(files=None, spark=None)


class Into(Sink):
    """Nothing is written; attempt after attempt has the next of these committers, the last one for good."""

    def __init__(self, *committers: Committer) -> None:
        self.committers = list(committers)

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        raise NotImplementedError("nothing is written")

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        return self.committers.pop(0) if len(self.committers) > 1 else self.committers[0]


def graph_of(sink: Sink) -> Any:
    """With the uid and name `out`."""
    return SimpleNamespace(operators=[SimpleNamespace(uid="out", name="out", user_location="job.py:7", sink=sink)])
