"""`Program`: everything the DataStream API knows about a job when `execute` is called, and all an executor needs.

It holds no reference to the environment: a program can be kept, inspected and run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.common import options
from penstock.common.configuration import Configuration
from penstock.common.restart_strategy import NoRestartStrategyConfiguration, restart_strategy_of
from penstock.common.time import as_millis

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.common.restart_strategy import RestartStrategyConfiguration
    from penstock.graph.transformation import Transformation


@dataclass(frozen=True)
class CheckpointSettings:
    """How checkpoints are taken; all times in ms.

    Args:
        interval_ms: None = no periodic checkpoints.
        directory: URL of the checkpoints' root, None = not configured.
        retention: `DELETE_ON_CANCELLATION`, `RETAIN_ON_CANCELLATION` or `NO_EXTERNALIZED_CHECKPOINTS`.
    """

    interval_ms: int | None = None
    mode: str = "EXACTLY_ONCE"
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    retention: str = "NO_EXTERNALIZED_CHECKPOINTS"
    directory: str | None = None
    savepoint_directory: str | None = None
    num_retained: int = 1
    incremental: bool = True

    @property
    def enabled(self) -> bool:
        return self.interval_ms is not None

    @staticmethod
    def of(configuration: Configuration) -> CheckpointSettings:
        """
        >>> CheckpointSettings.of(Configuration.from_dict({"execution.checkpointing.interval": "10s"})).interval_ms
        10000
        """
        get = configuration.get
        interval = get(options.CHECKPOINT_INTERVAL)
        return CheckpointSettings(
            interval_ms=as_millis(interval) if interval else None,
            mode=get(options.CHECKPOINT_MODE),
            timeout_ms=as_millis(get(options.CHECKPOINT_TIMEOUT)),
            min_pause_ms=as_millis(get(options.CHECKPOINT_MIN_PAUSE)),
            max_concurrent=get(options.MAX_CONCURRENT_CHECKPOINTS),
            tolerable_failures=get(options.TOLERABLE_FAILED_CHECKPOINTS),
            retention=get(options.CHECKPOINT_RETENTION),
            directory=get(options.CHECKPOINT_DIRECTORY),
            savepoint_directory=get(options.SAVEPOINT_DIRECTORY),
            num_retained=get(options.RETAINED_CHECKPOINTS),
            incremental=get(options.INCREMENTAL_CHECKPOINTS),
        )


@dataclass(frozen=True)
class Program:
    """A job as it was written.

    Args:
        transformations: the sinks and everything they depend on, upstream first.
        configuration: flat keys and texts, everything merged.
        parallelism: of operators that set none.
        max_parallelism: number of key groups; None = not set.
        state_backend: `hashmap` or `rocksdb`; its options are in the configuration.
        user_script: path of the program's file, None when there is none (a notebook, a prompt).
    """

    name: str
    transformations: list[Transformation]
    configuration: dict[str, str] = field(default_factory=dict)
    parallelism: int = 1
    max_parallelism: int | None = None
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    restart_strategy: RestartStrategyConfiguration = field(default_factory=NoRestartStrategyConfiguration)
    state_backend: str = "hashmap"
    global_job_parameters: dict[str, str] = field(default_factory=dict)
    user_script: str | None = None

    @staticmethod
    def of(
        name: str, sinks: Iterable[Transformation], configuration: Configuration, user_script: str | None = None
    ) -> Program:
        """The program of these sinks under a configuration."""
        checkpoints = CheckpointSettings.of(configuration)
        return Program(
            name=name,
            transformations=upstream_first(sinks),
            configuration=configuration.to_dict(),
            parallelism=configuration.get(options.PARALLELISM),
            max_parallelism=configuration.get(options.MAX_PARALLELISM),
            checkpoints=checkpoints,
            restart_strategy=restart_strategy_of(configuration, checkpointing=checkpoints.enabled),
            state_backend=configuration.get(options.STATE_BACKEND),
            global_job_parameters=configuration.get(options.GLOBAL_JOB_PARAMETERS),
            user_script=user_script,
        )

    @property
    def sinks(self) -> list[Transformation]:
        """Those nothing reads from."""
        return [transformation for transformation in self.transformations if transformation.is_sink]

    def settings(self) -> Configuration:
        """The configuration with its types."""
        return Configuration(self.configuration)


def upstream_first(sinks: Iterable[Transformation]) -> list[Transformation]:
    """The sinks and everything they depend on, in the order in which the program made them.

    A transformation is made after its inputs, so that order is a topological one.
    """
    found: dict[int, Transformation] = {}
    todo = list(sinks)
    while todo:
        transformation = todo.pop()
        if transformation.id not in found:
            found[transformation.id] = transformation
            todo.extend(edge.upstream for edge in transformation.inputs)
    return [found[key] for key in sorted(found)]
