"""The settings of a job for the JobMaster: typed, with defaults, in ms."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, cast

from penstock.common.config import options
from penstock.common.config.memory import task_manager_memory
from penstock.common.configuration import Configuration
from penstock.common.logs.log_settings import LogSettings
from penstock.common.program.bundle import Bundle
from penstock.common.restart_strategy import restart_strategy_of
from penstock.jobmanager.failover.restart_strategies import RestartStrategy, create_restart_strategy
from penstock.metrics.scope import ScopeFormats
from penstock.state.rocksdb.options import MEMORY
from penstock.taskmanager.watching.watchdog import CLOSING, LOADING, OPENING, RESTORING


def _ms(value: timedelta) -> int:
    return int(value.total_seconds() * 1000)


@dataclass(frozen=True)
class JobSettings:
    """Settings that are read once per job from its flat configuration."""

    configuration: dict[str, str]
    checkpoint_interval_ms: int
    checkpoint_mode: str
    """`EXACTLY_ONCE` or `AT_LEAST_ONCE`."""
    checkpoint_min_pause_ms: int
    checkpoint_timeout_ms: int
    tolerable_failures: int
    max_uncommitted: int
    retained: int
    retention: Literal["DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"]
    checkpoint_dir: str
    savepoint_dir: str
    backend: str
    backend_options: dict[str, Any]
    managed_memory: int | None
    """Memory of the state backend in a slot, in bytes. None means no limit."""
    scheduler: str
    runner: str
    """`batched`, `pipelined` or `auto`."""
    epoch_target_ms: int
    epoch_max_records: int
    epoch_max_bytes: int
    buffer_timeout_s: float = 0.0
    """Maximum time in seconds that a record waits in a buffer. Infinite means that only full buffers are sent."""
    object_store_options: dict[str, Any] = field(default_factory=dict)
    merged_file_bytes: int = 0
    """Maximum size in bytes of an object that merges small state files. 0 means that files are not merged."""
    allow_dropped: list[str] = field(default_factory=list)
    ignore_unclaimed: bool = False
    recovery_path: str = ""
    auto_watermark_interval_ms: int = 200
    chaining: bool = True
    require_uids: bool = False
    runtime_mode: str = "STREAMING"
    work_dir: str = ""
    from_local: bool = True
    """Whether state is restored from copies on the disks of the TaskManagers if they exist."""
    metric_scopes: ScopeFormats | None = None
    latency_interval_ms: int = 0
    latency_granularity: str = "operator"
    cancellation_timeout_ms: int = 10_000
    cancellation_interval_ms: int = 30_000
    ha: str = "none"
    step_limits: dict[str, float] = field(default_factory=dict)
    """Time limits in seconds of the steps of a task (`taskmanager.watching.watchdog`)."""
    worker_memory_limit: int = 0
    """Maximum bytes of each Python process that runs tasks. 0 means no limit."""
    first_epoch_timeout_s: float = 600.0
    enumerator_timeout_s: float = 600.0
    commit_timeout_s: float = 600.0
    slot_timeout_s: float = 300.0
    slot_priority: int = 0
    log: LogSettings = field(default_factory=LogSettings)
    python_path: list[str] = field(default_factory=list)
    """Directories and files with the program's modules, for the Python workers."""
    working_folder: str = ""
    """Directory with links to the program's archives, for the working directory of functions. It is empty without archives."""
    bundle: Bundle | None = None
    """Bundle with the program's code, which the workers fetch. None means that the workers have the code."""

    @property
    def checkpointing(self) -> bool:
        return self.checkpoint_interval_ms > 0

    @staticmethod
    def from_configuration(values: Mapping[str, Any]) -> JobSettings:
        conf = Configuration(values)
        interval = conf.get(options.CHECKPOINT_INTERVAL)
        return JobSettings(
            configuration=dict(conf.to_dict()),
            checkpoint_interval_ms=0 if interval is None else _ms(interval),
            checkpoint_mode=conf.get(options.CHECKPOINT_MODE),
            checkpoint_min_pause_ms=_ms(conf.get(options.CHECKPOINT_MIN_PAUSE)),
            checkpoint_timeout_ms=_ms(conf.get(options.CHECKPOINT_TIMEOUT)),
            tolerable_failures=conf.get(options.TOLERABLE_FAILED_CHECKPOINTS),
            max_uncommitted=conf.get(options.MAX_UNCOMMITTED_CHECKPOINTS),
            retained=conf.get(options.RETAINED_CHECKPOINTS),
            retention=cast("Any", conf.get(options.CHECKPOINT_RETENTION)),
            checkpoint_dir=conf.get(options.CHECKPOINT_DIRECTORY) or "",
            savepoint_dir=conf.get(options.SAVEPOINT_DIRECTORY) or "",
            backend=conf.get(options.STATE_BACKEND),
            backend_options=_backend_options(conf),
            managed_memory=task_manager_memory(conf).managed_per_slot,
            scheduler=conf.get(options.SCHEDULER),
            runner=conf.get(options.RUNNER),
            epoch_target_ms=_ms(conf.get(options.EPOCH_TARGET)),
            epoch_max_records=conf.get(options.EPOCH_MAX_RECORDS),
            epoch_max_bytes=conf.get(options.EPOCH_MAX_BYTES),
            buffer_timeout_s=(
                conf.get(options.BUFFER_TIMEOUT).total_seconds()
                if conf.get(options.BUFFER_TIMEOUT_ENABLED)
                else math.inf
            ),
            object_store_options=object_store_options(conf),
            merged_file_bytes=conf.get(options.FILE_MERGING_MAX_SIZE) if conf.get(options.FILE_MERGING) else 0,
            allow_dropped=conf.get(options.ALLOW_DROPPED_STATE),
            ignore_unclaimed=conf.get(options.IGNORE_UNCLAIMED_STATE),
            recovery_path=conf.get(options.RECOVERY_PATH) or "",
            auto_watermark_interval_ms=_ms(conf.get(options.AUTO_WATERMARK_INTERVAL)),
            chaining=conf.get(options.OPERATOR_CHAINING),
            require_uids=not conf.get(options.AUTO_GENERATE_UIDS),
            runtime_mode=conf.get(options.RUNTIME_MODE),
            cancellation_timeout_ms=_ms(conf.get(options.TASK_CANCELLATION_TIMEOUT)),
            cancellation_interval_ms=_ms(conf.get(options.TASK_CANCELLATION_INTERVAL)),
            work_dir=conf.get(options.TMP_DIRECTORIES) or "",
            from_local=conf.get(options.RECOVERY_FROM_LOCAL),
            metric_scopes=ScopeFormats.from_configuration(conf.to_dict()),
            latency_interval_ms=_ms(conf.get(options.LATENCY_INTERVAL)),
            latency_granularity=conf.get(options.LATENCY_GRANULARITY),
            ha=conf.get(options.HIGH_AVAILABILITY),
            step_limits=_step_limits(conf),
            worker_memory_limit=conf.get(options.PROGRAM_WORKER_MEMORY) or 0,
            first_epoch_timeout_s=conf.get(options.FIRST_EPOCH_TIMEOUT).total_seconds(),
            enumerator_timeout_s=conf.get(options.ENUMERATOR_TIMEOUT).total_seconds(),
            commit_timeout_s=conf.get(options.COMMIT_TIMEOUT).total_seconds(),
            slot_timeout_s=conf.get(options.SLOT_REQUEST_TIMEOUT).total_seconds(),
            slot_priority=conf.get(options.SLOT_PRIORITY),
            log=LogSettings.from_configuration(conf),
            python_path=[os.path.abspath(path) for path in conf.get(options.PYTHON_FILES)],
        )

    @property
    def backend_options_of_slot(self) -> dict[str, Any]:
        """Return the options of the backend, with the memory that all operators of a slot share."""
        if self.managed_memory is None:
            return self.backend_options
        return {**self.backend_options, MEMORY: self.managed_memory}

    @property
    def keeps_local_copies(self) -> bool:
        """Return whether the disks of TaskManagers keep the files of the newest checkpoint (`taskmanager.local_state.files`)."""
        return self.from_local and self.backend == "rocksdb"

    def aligns(self, *, batch: bool) -> bool:
        """Return whether barriers hold back later records. In batch mode they always do, because no record of a key may follow the key's
        result.
        """
        return batch or self.checkpoint_mode == "EXACTLY_ONCE"

    def uses_pipelined(self, *, dataframes: bool) -> bool:
        """Return whether the pipelined runner is used. `auto` uses it except for jobs with DataFrames, which need slots between epochs."""
        return self.runner == "pipelined" or (self.runner == "auto" and not dataframes)

    def restart_strategy(self) -> RestartStrategy:
        """Return a new strategy, whose counters are zero."""
        return create_restart_strategy(
            restart_strategy_of(Configuration(self.configuration), checkpointing=self.checkpointing)
        )


def object_store_options(conf: Configuration) -> dict[str, Any]:
    """Return the fsspec options of S3 from the `s3.*` keys. All other options come from the environment.

    >>> object_store_options(Configuration({"s3.endpoint": "http://minio:9000", "s3.path.style.access": "true"}))
    {'endpoint_url': 'http://minio:9000', 'config_kwargs': {'s3': {'addressing_style': 'path'}}}
    """
    s3: dict[str, Any] = {}
    client: dict[str, Any] = {}
    if endpoint := conf.get(options.S3_ENDPOINT):
        s3["endpoint_url"] = endpoint
    if key := conf.get(options.S3_ACCESS_KEY):
        s3["key"] = key
    if secret := conf.get(options.S3_SECRET_KEY):
        s3["secret"] = secret
    if region := conf.get(options.S3_REGION):
        client["region_name"] = region
    if client:
        s3["client_kwargs"] = client
    if conf.get(options.S3_PATH_STYLE):
        s3["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return s3


_OF_ROCKSDB = "state.backend.rocksdb."


def _backend_options(conf: Configuration) -> dict[str, Any]:
    given = {
        key.removeprefix(_OF_ROCKSDB): value for key, value in conf.to_dict().items() if key.startswith(_OF_ROCKSDB)
    }
    return given | {"memory.write-buffer-ratio": conf.get(options.ROCKSDB_WRITE_BUFFER_RATIO)}


def _step_limits(conf: Configuration) -> dict[str, float]:
    """Return the time limits in seconds of the steps of a start or an end."""
    return {
        LOADING: conf.get(options.LOAD_TIMEOUT).total_seconds(),
        RESTORING: conf.get(options.RESTORE_TIMEOUT).total_seconds(),
        OPENING: conf.get(options.OPEN_TIMEOUT).total_seconds(),
        CLOSING: conf.get(options.TASK_CANCELLATION_TIMEOUT).total_seconds(),
    }
