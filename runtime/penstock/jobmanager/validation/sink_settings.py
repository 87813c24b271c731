"""Checks of sources and sinks against the job's checkpoint settings and against the job's other sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.common.errors import InvalidJob, PenstockError

if TYPE_CHECKING:
    from penstock.graph.job_graph import JobGraph, OperatorNode


def check_borders(graph: JobGraph, checkpoint_interval_ms: int) -> None:
    """Check the sources and sinks of a job.

    Args:
        checkpoint_interval_ms: interval, or 0 if checkpointing is disabled.

    Raises:
        InvalidJob: a source or sink does not support the job's checkpoints, or two sinks use the same external name.
    """
    bounded = all(node.source.bounded for node in graph.operators if node.source is not None)
    owners: dict[str, OperatorNode] = {}
    for node in graph.operators:
        check = getattr(node.sink, "check_checkpoints", None)  # a sink may implement the methods without the base class
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
                        remedy="give one of the sinks another name",
                    )
        except PenstockError as error:
            error.operator = error.operator or node.name
            error.location = error.location or node.user_location
            raise
