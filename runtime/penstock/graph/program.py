"""`Program`: everything that an executor needs to run a job. `execute` creates it from the recorded transformations.

A program has no reference to the environment. It can be kept, inspected and run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.common.config import options
from penstock.common.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.graph.transformation import Transformation


@dataclass(frozen=True)
class Program:
    """A job as the program describes it.

    Args:
        transformations: the sinks and all their inputs, upstream first.
        configuration: the merged configuration, as flat keys and texts. The executor interprets the texts.
        parallelism: parallelism of operators that set no parallelism.
        max_parallelism: number of key groups; None means not set.
        user_script: path of the program's file; None if it has no file (a notebook, a prompt).
        plans: plans of SQL statements, which the job's manifests keep.
    """

    name: str
    transformations: list[Transformation]
    configuration: dict[str, str] = field(default_factory=dict)
    parallelism: int = 1
    max_parallelism: int | None = None
    global_job_parameters: dict[str, str] = field(default_factory=dict)
    user_script: str | None = None
    plans: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(
        name: str, sinks: Iterable[Transformation], configuration: Configuration, user_script: str | None = None
    ) -> Program:
        """Return the program of these sinks with a configuration."""
        return Program(
            name=name,
            transformations=upstream_first(sinks),
            configuration=configuration.to_dict(),
            parallelism=configuration.get(options.PARALLELISM),
            max_parallelism=configuration.get(options.MAX_PARALLELISM),
            global_job_parameters=configuration.get(options.GLOBAL_JOB_PARAMETERS),
            user_script=user_script,
        )

    @property
    def sinks(self) -> list[Transformation]:
        """The transformations that no other transformation reads."""
        return [transformation for transformation in self.transformations if transformation.is_sink]

    def settings(self) -> Configuration:
        """Return the configuration with its types."""
        return Configuration(self.configuration)


def upstream_first(sinks: Iterable[Transformation]) -> list[Transformation]:
    """Return the sinks and all their inputs, in the order in which the program created them.

    A transformation is created after its inputs, so this order is topological.
    """
    found: dict[int, Transformation] = {}
    todo = list(sinks)
    while todo:
        transformation = todo.pop()
        if transformation.id not in found:
            found[transformation.id] = transformation
            todo.extend(edge.upstream for edge in transformation.inputs)
    return [found[key] for key in sorted(found)]
