"""Ids of vertices, and durations of items that may not have ended."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from penstock.rest import facts
from penstock.rest.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence


def vertex_id(engine_id: str) -> str:
    """Return the id that REST shows. Flink's ids have 32 hex digits, so numbers are padded and other ids are hashed.

    >>> vertex_id("10")
    '00000000000000000000000000000010'
    """
    if re.fullmatch("[0-9a-f]{32}", engine_id):
        return engine_id
    if re.fullmatch("[0-9]{1,32}", engine_id):
        return engine_id.rjust(32, "0")
    return hashlib.sha256(engine_id.encode()).hexdigest()[:32]


def find_vertex(job: facts.Job, wanted: str) -> facts.Vertex:
    """Return the vertex with an id. The id may be REST's or the engine's.

    Raises:
        NotFound: the vertex does not exist. The error lists the existing vertices.
    """
    for vertex in job.vertices:
        if wanted in (vertex.id, vertex_id(vertex.id)):
            return vertex
    known = ", ".join(f"{vertex_id(v.id)} ({v.name})" for v in job.vertices)
    raise NotFound(f"job {job.id} has no vertex {wanted}", remedy=f"its vertices are {known}" if known else "")


def find_subtask(vertex: facts.Vertex, index: int) -> facts.Subtask:
    """Return a subtask of a vertex.

    Raises:
        NotFound: the vertex has fewer subtasks.
    """
    for subtask in vertex.subtasks:
        if subtask.index == index:
            return subtask
    raise NotFound(f"vertex {vertex_id(vertex.id)} ({vertex.name}) has no subtask {index}; it has {vertex.parallelism}")


def find_attempt(subtask: facts.Subtask, attempt: int) -> facts.Subtask:
    """Return an attempt of a subtask.

    Raises:
        NotFound: the attempt is not the latest one. Earlier attempts are not known.
    """
    if subtask.attempt != attempt:
        raise NotFound(
            f"attempt {attempt} of subtask {subtask.index} is not available. Only data of the present attempt, {subtask.attempt}, is kept"
        )
    return subtask


def duration(start: int, end: int, now: int) -> int:
    """Return the duration in ms, or NOT_YET before the start."""
    if start == facts.NOT_YET:
        return facts.NOT_YET
    return max(0, (now if end == facts.NOT_YET else end) - start)


def first_start(subtasks: Sequence[facts.Subtask]) -> int:
    return min((s.start for s in subtasks if s.start != facts.NOT_YET), default=facts.NOT_YET)


def last_end(subtasks: Sequence[facts.Subtask]) -> int:
    """Return the latest end of the subtasks, or NOT_YET if a subtask has not ended."""
    ends = [s.end for s in subtasks]
    return facts.NOT_YET if not ends or facts.NOT_YET in ends else max(ends)
