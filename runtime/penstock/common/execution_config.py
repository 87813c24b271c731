"""`ExecutionConfig`: the settings of a program's execution, as a view of the environment's configuration."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.program.one_time_warning import warn_no_effect
from penstock.common.program.user_location import refusal
from penstock.common.time import TimeLike, as_millis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.common.config.option import ConfigOption

UPPER_MAX_PARALLELISM = 32_768
_KRYO = "Kryo serializes Java objects, which Penstock does not have"


class ExecutionConfig:
    """The settings of a program's execution. Setters return the object, so that calls can be chained.

    >>> config = ExecutionConfig().set_parallelism(4).set_global_job_parameters({"threshold": "1.5"})
    >>> config.get_parallelism(), config.get_global_job_parameters()
    (4, {'threshold': '1.5'})
    """

    PARALLELISM_DEFAULT = -1
    """Value of a parallelism that means "use the configured default"."""
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration
        self._cleans_closures = True
        self._compresses_snapshots = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._configuration == other._configuration

    def __hash__(self) -> int:
        return hash(self._configuration)

    def get_parallelism(self) -> int:
        return self._configuration.get(options.PARALLELISM)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the default parallelism.

        Raises:
            InvalidJob: the value is neither a positive number nor `PARALLELISM_DEFAULT`.
        """
        if parallelism in (self.PARALLELISM_DEFAULT, self.PARALLELISM_UNKNOWN):
            return self
        return self._set(options.PARALLELISM, checked_parallelism(parallelism))

    def get_max_parallelism(self) -> int:
        """Return the maximum parallelism, or -1 if it is not set."""
        value = self._configuration.get(options.MAX_PARALLELISM)
        return -1 if value is None else value

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        return self._set(options.MAX_PARALLELISM, checked_parallelism(max_parallelism, "max parallelism"))

    def set_auto_watermark_interval(self, interval: TimeLike) -> ExecutionConfig:
        """Set the interval of periodic watermarks; 0 turns them off. Bounded input still emits its final watermark."""
        return self._set_duration(options.AUTO_WATERMARK_INTERVAL, interval)

    def get_auto_watermark_interval(self) -> int:
        """Return the interval in ms."""
        return as_millis(self._configuration.get(options.AUTO_WATERMARK_INTERVAL))

    def set_latency_tracking_interval(self, interval: TimeLike) -> ExecutionConfig:
        """Set the interval at which a source sends latency markers (`metrics.latency.interval`); 0 turns them off."""
        return self._set_duration(options.LATENCY_INTERVAL, interval)

    def get_latency_tracking_interval(self) -> int:
        """Return the interval in ms; 0 means no latency markers."""
        return as_millis(self._configuration.get(options.LATENCY_INTERVAL))

    def set_task_cancellation_interval(self, interval: TimeLike) -> ExecutionConfig:
        return self._set_duration(options.TASK_CANCELLATION_INTERVAL, interval)

    def get_task_cancellation_interval(self) -> int:
        """Return the interval in ms."""
        return as_millis(self._configuration.get(options.TASK_CANCELLATION_INTERVAL))

    def set_task_cancellation_timeout(self, timeout: TimeLike) -> ExecutionConfig:
        return self._set_duration(options.TASK_CANCELLATION_TIMEOUT, timeout)

    def get_task_cancellation_timeout(self) -> int:
        """Return the timeout in ms."""
        return as_millis(self._configuration.get(options.TASK_CANCELLATION_TIMEOUT))

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """Set parameters that every function can read with `RuntimeContext.get_job_parameter`."""
        parameters = {str(key): str(value) for key, value in global_job_parameters_dict.items()}
        return self._set(options.GLOBAL_JOB_PARAMETERS, parameters)

    def get_global_job_parameters(self) -> dict[str, str]:
        return self._configuration.get(options.GLOBAL_JOB_PARAMETERS)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        return self._set(options.AUTO_GENERATE_UIDS, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse operators without a uid, because a changed program could not find the state of such operators."""
        return self._set(options.AUTO_GENERATE_UIDS, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        return self._configuration.get(options.AUTO_GENERATE_UIDS)

    def enable_object_reuse(self) -> ExecutionConfig:
        return self._set(options.OBJECT_REUSE, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        return self._set(options.OBJECT_REUSE, False)

    def is_object_reuse_enabled(self) -> bool:
        return self._configuration.get(options.OBJECT_REUSE)

    def enable_closure_cleaner(self) -> ExecutionConfig:
        self._cleans_closures = True
        return self

    def disable_closure_cleaner(self) -> ExecutionConfig:
        warn_no_effect("disable_closure_cleaner", "Python functions are sent without a closure cleaner")
        self._cleans_closures = False
        return self

    def is_closure_cleaner_enabled(self) -> bool:
        """Return the value that was set. The setting has no effect."""
        return self._cleans_closures

    def enable_force_kryo(self) -> ExecutionConfig:
        warn_no_effect("enable_force_kryo", _KRYO)
        return self

    def disable_force_kryo(self) -> ExecutionConfig:
        return self

    def is_force_kryo_enabled(self) -> bool:
        return False

    def enable_generic_types(self) -> ExecutionConfig:
        return self

    def disable_generic_types(self) -> ExecutionConfig:
        warn_no_effect("disable_generic_types", "no value is ever stored by a generic serializer")
        return self

    def has_generic_types_disabled(self) -> bool:
        return True

    def enable_force_avro(self) -> ExecutionConfig:
        warn_no_effect("enable_force_avro", "values are stored by their type, never by Avro")
        return self

    def disable_force_avro(self) -> ExecutionConfig:
        return self

    def is_force_avro_enabled(self) -> bool:
        return False

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        return []

    def get_registered_pojo_types(self) -> list[str]:
        return []

    def is_use_snapshot_compression(self) -> bool:
        """Return the value that was set. The setting has no effect."""
        return self._compresses_snapshots

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        if not use_snapshot_compression:
            warn_no_effect("set_use_snapshot_compression(False)", "snapshot files have one format")
        self._compresses_snapshots = use_snapshot_compression
        return self

    def _set(self, option: ConfigOption[Any], value: Any) -> ExecutionConfig:
        self._configuration.set(option, value)
        return self

    def _set_duration(self, option: ConfigOption[timedelta], length: TimeLike) -> ExecutionConfig:
        millis = as_millis(length, option.key)
        if millis < 0:
            raise refusal(f"{option.key} must not be negative, got {length!r}")
        return self._set(option, timedelta(milliseconds=millis))

    def __repr__(self) -> str:
        return f"ExecutionConfig({self._configuration!r})"


def checked_parallelism(parallelism: int, name: str = "parallelism") -> int:
    """Return the number if it is a valid parallelism.

    Raises:
        InvalidJob: the number is not valid. The error names the value and the user's line.
    """
    if (
        isinstance(parallelism, bool)
        or not isinstance(parallelism, int)
        or not 1 <= parallelism <= UPPER_MAX_PARALLELISM
    ):
        raise refusal(f"{name} must be from 1 to {UPPER_MAX_PARALLELISM}, got {parallelism!r}")
    return parallelism
