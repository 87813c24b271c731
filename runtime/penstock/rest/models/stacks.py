"""Stacks of threads, as REST shows them; shapes are Flink's."""

from __future__ import annotations

from penstock.rest.models.base import Camel, Shape


class ThreadInfo(Camel):
    """A thread, and its stack as text, the innermost frame first."""

    thread_name: str
    stringified_thread_info: str


class ThreadDump(Camel):
    """`GET /jobmanager/thread-dump` and `GET /taskmanagers/:id/thread-dump`, of its Python workers."""

    thread_infos: list[ThreadInfo]


class FlameNode(Shape):
    """A frame. `value`: how often it was seen."""

    name: str
    value: int
    children: list[FlameNode]


class FlameGraph(Camel):
    """`GET /jobs/:id/vertices/:id/flamegraph`. `end_timestamp`: ms since 1970."""

    end_timestamp: int
    root: FlameNode
