"""`CheckpointConfig`: the checkpoint settings, as a view of the environment's configuration."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.program.one_time_warning import warn_no_effect, warn_short
from penstock.common.program.user_location import refusal
from penstock.common.time import TimeLike, as_millis
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention

if TYPE_CHECKING:
    from penstock.common.config.option import ConfigOption
    from penstock.datastream.checkpoint_storage import CheckpointStorage

_ALIGNED = "no records are in flight at the end of an epoch, so checkpoints need no alignment"


class CheckpointConfig:
    """Configuration of the checkpoints of a job.

    Setters return the configuration, so calls can be chained. Times are in ms. Setters also take a `timedelta`.

    >>> config = CheckpointConfig().set_checkpoint_interval(timedelta(seconds=10)).set_num_retained(3)
    >>> config.is_checkpointing_enabled(), config.get_checkpoint_interval(), config.get_checkpoint_timeout()
    (True, 10000, 600000)
    """

    DEFAULT_MODE = CheckpointingMode.EXACTLY_ONCE
    DEFAULT_TIMEOUT = 600_000
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS = 0
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS = 1

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration

    def set_checkpoint_storage(self, storage: CheckpointStorage | str) -> CheckpointConfig:
        """Set the location of the checkpoints: a storage, or the URL of a directory."""
        settings = {options.CHECKPOINT_DIRECTORY.key: storage} if isinstance(storage, str) else storage.to_settings()
        self._configuration.add_all(settings)
        return self

    def is_checkpointing_enabled(self) -> bool:
        return self.get_checkpoint_interval() > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return CheckpointingMode[self._configuration.get(options.CHECKPOINT_MODE)]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        return self._set(options.CHECKPOINT_MODE, checkpointing_mode.name)

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        return self.get_checkpointing_mode()

    def get_checkpoint_interval(self) -> int:
        """Return the interval in ms, or -1 if checkpointing is disabled."""
        interval = self._configuration.get(options.CHECKPOINT_INTERVAL)
        return as_millis(interval) if interval else -1

    def set_checkpoint_interval(self, checkpoint_interval: TimeLike) -> CheckpointConfig:
        warn_short(checkpoint_interval, options.CHECKPOINT_INTERVAL.key)
        return self._set_duration(options.CHECKPOINT_INTERVAL, checkpoint_interval, least_ms=1)

    def get_checkpoint_timeout(self) -> int:
        """Return the timeout in ms."""
        return as_millis(self._configuration.get(options.CHECKPOINT_TIMEOUT))

    def set_checkpoint_timeout(self, checkpoint_timeout: TimeLike) -> CheckpointConfig:
        return self._set_duration(options.CHECKPOINT_TIMEOUT, checkpoint_timeout, least_ms=1)

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the pause in ms."""
        return as_millis(self._configuration.get(options.CHECKPOINT_MIN_PAUSE))

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: TimeLike) -> CheckpointConfig:
        return self._set_duration(options.CHECKPOINT_MIN_PAUSE, min_pause_between_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        return self._configuration.get(options.MAX_CONCURRENT_CHECKPOINTS)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        if max_concurrent_checkpoints > 1:
            warn_no_effect("set_max_concurrent_checkpoints", "one checkpoint is in progress at a time")
        return self._set(options.MAX_CONCURRENT_CHECKPOINTS, max_concurrent_checkpoints)

    def is_fail_on_checkpointing_errors(self) -> bool:
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Set whether a failed checkpoint fails the job. True means that the first failed checkpoint triggers a failover. False means that
        failed checkpoints never trigger a failover."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else 2**31 - 1)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        return self._configuration.get(options.TOLERABLE_FAILED_CHECKPOINTS)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        return self._set(options.TOLERABLE_FAILED_CHECKPOINTS, tolerable_checkpoint_failure_number)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        return self._set(options.CHECKPOINT_RETENTION, retention_mode.name)

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        return ExternalizedCheckpointRetention[self._configuration.get(options.CHECKPOINT_RETENTION)]

    def is_externalized_checkpoints_enabled(self) -> bool:
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def get_checkpoint_directory(self) -> str | None:
        return self._configuration.get(options.CHECKPOINT_DIRECTORY)

    def set_checkpoint_storage_dir(self, directory: str) -> CheckpointConfig:
        """Set the URL of the directory for checkpoints: `s3://…`, `file://…`, or any other URL that fsspec supports."""
        return self._set(options.CHECKPOINT_DIRECTORY, directory)

    def get_num_retained(self) -> int:
        return self._configuration.get(options.RETAINED_CHECKPOINTS)

    def set_num_retained(self, num_retained: int) -> CheckpointConfig:
        """Set the number of completed checkpoints to keep."""
        return self._set(options.RETAINED_CHECKPOINTS, num_retained)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self._configuration.get(options.UNALIGNED_CHECKPOINTS)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        if enabled:
            warn_no_effect("enable_unaligned_checkpoints", _ALIGNED)
        return self._set(options.UNALIGNED_CHECKPOINTS, enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        return self.enable_unaligned_checkpoints(enabled=False)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: TimeLike) -> CheckpointConfig:
        warn_no_effect("set_aligned_checkpoint_timeout", _ALIGNED)
        return self._set_duration(options.ALIGNED_CHECKPOINT_TIMEOUT, alignment_timeout)

    def get_aligned_checkpoint_timeout(self) -> timedelta:
        return self._configuration.get(options.ALIGNED_CHECKPOINT_TIMEOUT)

    def set_alignment_timeout(self, alignment_timeout: TimeLike) -> CheckpointConfig:
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def get_alignment_timeout(self) -> timedelta:
        return self.get_aligned_checkpoint_timeout()

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        if force_unaligned_checkpoints:
            warn_no_effect("set_force_unaligned_checkpoints", _ALIGNED)
        return self._set(options.FORCE_UNALIGNED_CHECKPOINTS, force_unaligned_checkpoints)

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._configuration.get(options.FORCE_UNALIGNED_CHECKPOINTS)

    def _set(self, option: ConfigOption[Any], value: Any) -> CheckpointConfig:
        self._configuration.set(option, value)
        return self

    def _set_duration(self, option: ConfigOption[Any], length: TimeLike, least_ms: int = 0) -> CheckpointConfig:
        millis = as_millis(length, option.key)
        if millis < least_ms:
            raise refusal(f"{option.key} must be at least {least_ms} ms, got {length!r}")
        return self._set(option, timedelta(milliseconds=millis))
