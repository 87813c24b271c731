"""Stacks of threads in REST, in Flink's shapes."""

from __future__ import annotations

from penstock.rest.models.base import Camel, Shape


class ThreadInfo(Camel):
    """Thread and its stack as text, the innermost frame first."""

    thread_name: str
    stringified_thread_info: str


class ThreadDump(Camel):
    """`GET /jobmanager/thread-dump` and `GET /taskmanagers/:id/thread-dump`, which shows the Python workers."""

    thread_infos: list[ThreadInfo]


class FlameNode(Shape):
    """Frame. `value`: number of samples that contain it."""

    name: str
    value: int
    children: list[FlameNode]


class FlameGraph(Camel):
    """`GET /jobs/:id/vertices/:id/flamegraph`. `end_timestamp`: ms since the epoch."""

    end_timestamp: int
    root: FlameNode
