"""Types and rows, configuration, times, errors, and the objects that a program passes to Penstock or gets from it.

>>> from penstock.common import Row
>>> Row(station="KJFK")
Row(station='KJFK')
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.common.completable_future import CompletableFuture
    from penstock.common.config_options import (
        ConfigOption,
        ConfigOptions,
    )
    from penstock.common.configuration import Configuration
    from penstock.common.execution_config import ExecutionConfig
    from penstock.common.input_dependency_constraint import (
        InputDependencyConstraint,
    )
    from penstock.common.job_client import JobClient
    from penstock.common.job_execution_result import JobExecutionResult
    from penstock.common.job_id import JobID
    from penstock.common.job_status import JobStatus
    from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
    from penstock.common.serialization import (
        ByteArraySchema,
        DeserializationSchema,
        Encoder,
        SerializationSchema,
        SimpleStringSchema,
    )
    from penstock.common.serializer import (
        TypeSerializer,
    )
    from penstock.common.time import Duration, Instant, Time
    from penstock.common.typeinfo import TypeInformation, Types
    from penstock.common.types import Row, RowKind
    from penstock.common.watermark_strategy import TimestampAssigner, WatermarkStrategy

_MODULES = {
    "serializer": ["TypeSerializer"],
    "input_dependency_constraint": ["InputDependencyConstraint"],
    "config_options": ["ConfigOption", "ConfigOptions"],
    "completable_future": ["CompletableFuture"],
    "configuration": ["Configuration"],
    "execution_config": ["ExecutionConfig"],
    "job_client": ["JobClient"],
    "job_execution_result": ["JobExecutionResult"],
    "job_id": ["JobID"],
    "job_status": ["JobStatus"],
    "restart_strategy": ["RestartStrategies", "RestartStrategyConfiguration"],
    "serialization": [
        "ByteArraySchema",
        "DeserializationSchema",
        "Encoder",
        "SerializationSchema",
        "SimpleStringSchema",
    ],
    "time": ["Duration", "Instant", "Time"],
    "typeinfo": ["TypeInformation", "Types"],
    "types": ["Row", "RowKind"],
    "watermark_strategy": ["TimestampAssigner", "WatermarkStrategy"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "InputDependencyConstraint",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkStrategy",
]


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that a worker loads only what it uses."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
