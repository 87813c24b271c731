"""Stacks of threads in REST, in Flink's shapes."""

from __future__ import annotations

from penstock.rest.models.base import Camel, Shape


class ThreadInfo(Camel):
    """Thread and its stack as text, the innermost frame first."""

    thread_name: str
    stringified_thread_info: str


class ThreadDump(Camel):
    """`GET /jobmanager/thread-dump` and `GET /taskmanagers/:id/thread-dump`. The second path shows the Python
    workers."""

    thread_infos: list[ThreadInfo]


class Edge(Camel):
    """Edge of the job graph. `name`: `SOURCE → TARGET`. `chained`: both operators are in the same vertex.

    `side_output`: the side output that the edge carries. null means the main output.
    """

    name: str
    uid: str
    source: str
    side_output: str | None
    target_uid: str
    target: str
    vertex: str
    chained: bool


class EdgeList(Camel):
    """`GET /jobs/:id/edges`."""

    edges: list[Edge]


class EdgeRecord(Camel):
    """Record on an edge. `seen_at`: when it was emitted. `value` and `key` are texts of at most 2,000 characters."""

    seen_at: int
    subtask: int
    timestamp: int | None
    key: str | None
    value: str


class EdgeRecords(Camel):
    """`GET /jobs/:id/edges/records`: the last records, the newest last. `edge`: name of the edge."""

    edge: str
    records: list[EdgeRecord]


class FlameNode(Shape):
    """Frame. `value`: number of samples that contain the frame."""

    name: str
    value: int
    children: list[FlameNode]


class FlameGraph(Camel):
    """`GET /jobs/:id/vertices/:id/flamegraph`. `end_timestamp`: ms since the epoch."""

    end_timestamp: int
    root: FlameNode
