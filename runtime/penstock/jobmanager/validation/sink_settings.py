"""What sources and sinks say of the job around them: its checkpoints, and the other sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.common.errors import InvalidJob, PenstockError

if TYPE_CHECKING:
    from penstock.graph.job_graph import JobGraph, OperatorNode


def check_borders(graph: JobGraph, checkpoint_interval_ms: int) -> None:
    """
    Args:
        checkpoint_interval_ms: 0: there are no checkpoints.

    Raises:
        InvalidJob: a source or sink does not fit the job's checkpoints, or two sinks claim one name outside of the job.
    """
    bounded = all(node.source.bounded for node in graph.operators if node.source is not None)
    owners: dict[str, OperatorNode] = {}
    for node in graph.operators:
        check = getattr(node.sink, "check_checkpoints", None)  # a sink may have the methods without the class
        check_source = getattr(node.source, "check_checkpoints", None)
        names = getattr(node.sink, "exclusive_names", tuple)
        try:
            if check_source is not None:
                check_source(checkpoint_interval_ms)
            if check is not None:
                check(checkpoint_interval_ms, bounded=bounded)
            for name in names():
                other = owners.setdefault(name, node)
                if other is not node:
                    raise InvalidJob(
                        f"sinks {other.name!r} ({other.user_location}) and {node.name!r} both have {name}",
                        remedy="give each sink a name of its own",
                    )
        except PenstockError as error:
            error.operator = error.operator or node.name
            error.location = error.location or node.user_location
            raise
