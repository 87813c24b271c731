"""The edges of a job graph, and the last records on one edge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from penstock.common.stacks.edge_records import EdgeQuestion, newest
from penstock.rest import models
from penstock.rest.errors import BadRequest, NotFound
from penstock.rest.views.ids import vertex_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.common.stacks.edge_records import EdgeRecord
    from penstock.rest import facts

_MAX_CONCURRENT = 64


def edge_name(edge: facts.Edge) -> str:
    """Return the name that people see, such as `Orders → Totals` or `Parse [invalid] → Print`."""
    side = "" if edge.side_tag is None else f" [{edge.side_tag}]"
    return f"{edge.source}{side} → {edge.target}"


def edge_list(edges: Sequence[facts.Edge]) -> models.EdgeList:
    return models.EdgeList(
        edges=[
            models.Edge(
                name=edge_name(edge),
                uid=edge.uid,
                source=edge.source,
                side_output=edge.side_tag,
                target_uid=edge.target_uid,
                target=edge.target,
                vertex=vertex_id(edge.vertex_id),
                chained=edge.is_chained,
            )
            for edge in edges
        ]
    )


def find_edge(edges: Sequence[facts.Edge], wanted: str) -> facts.Edge:
    """Return the edge with a name, or the edge that leaves an operator or a vertex with only one output.

    Args:
        wanted: `SOURCE → TARGET`, or with `->`. SOURCE and TARGET are names or uids of operators. SOURCE alone, or the id of a vertex,
            selects the edge that leaves this operator or vertex.

    Raises:
        NotFound: no edge has the name. The error lists the edges.
        BadRequest: several edges with different records have the name.
    """
    source, _, target = wanted.replace("->", "→").partition("→")
    source, target = source.strip(), target.strip()
    matches = [edge for edge in edges if _starts_at(edge, source) and target in ("", edge.target, edge.target_uid)]
    if not matches and not target:
        matches = [
            edge for edge in edges if not edge.is_chained and source in (edge.vertex_id, vertex_id(edge.vertex_id))
        ]
    known = "; ".join(edge_name(edge) for edge in edges) or "none, because the job has one operator or has ended"
    if not matches:
        raise NotFound(f"the job has no edge {wanted!r}", remedy=f"its edges are: {known}")
    if len({(edge.uid, edge.side_tag) for edge in matches}) > 1:
        names = "; ".join(edge_name(edge) for edge in matches)
        raise BadRequest(
            f"several edges are named {wanted!r}", remedy=f"choose one by the uids of its operators: {names}"
        )
    return matches[0]


def _starts_at(edge: facts.Edge, source: str) -> bool:
    side = "" if edge.side_tag is None else f" [{edge.side_tag}]"
    return source in (f"{edge.source}{side}", f"{edge.uid}{side}")


def last_records(
    ask: Callable[[str, EdgeQuestion], Sequence[EdgeRecord]],
    task_managers: Sequence[str],
    question: EdgeQuestion,
    name: str,
) -> models.EdgeRecords:
    """Ask all TaskManagers at the same time, and return the newest records. A TaskManager that answers late is not awaited if the others
    have enough records.
    """
    found: list[EdgeRecord] = []
    if task_managers:
        pool = ThreadPoolExecutor(min(len(task_managers), _MAX_CONCURRENT), thread_name_prefix="edge-records")
        try:
            for answer in as_completed([pool.submit(ask, task_manager, question) for task_manager in task_managers]):
                found += answer.result()
                if len(found) >= question.count:
                    break
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return models.EdgeRecords(
        edge=name,
        records=[
            models.EdgeRecord(
                seen_at=record.seen_at,
                subtask=record.subtask,
                timestamp=record.timestamp,
                key=record.key,
                value=record.text,
            )
            for record in newest(found, question.count)
        ],
    )
