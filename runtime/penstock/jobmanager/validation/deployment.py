"""Checks of a job against the cluster that will run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.common.config import options
from penstock.common.errors import InvalidJob

if TYPE_CHECKING:
    from penstock.graph.job_graph import JobGraph
    from penstock.jobmanager.job.settings import JobSettings


def check_elected(settings: JobSettings) -> None:
    """Check a job whose masters elect a leader.

    Raises:
        InvalidJob: the job has no checkpoint directory. Its checkpoints, its end and its requests would be in a folder of one master.
    """
    if not settings.checkpoint_dir:
        raise InvalidJob(
            f"{options.HIGH_AVAILABILITY.key} is set, but the job has no {options.CHECKPOINT_DIRECTORY.key}. A standby could not continue "
            "the job, and nothing would prevent two leaders from writing its output",
            remedy=f"set {options.CHECKPOINT_DIRECTORY.key} to a folder that all masters can write, such as s3://bucket/checkpoints",
        )


def check_runner(graph: JobGraph, settings: JobSettings) -> None:
    """Check that the runner supports the program.

    Raises:
        InvalidJob: `from_spark` or `to_spark` with the pipelined runner, whose tasks never release their slots.
    """
    node = next((node for node in graph.operators if node.needs_spark), None)
    if node is not None and settings.runner == "pipelined":
        raise InvalidJob(
            "from_spark and to_spark run between two epochs, but the tasks of the pipelined runner never pause",
            remedy="set penstock.runner to batched or auto",
            operator=node.name,
            location=node.user_location,
        )
