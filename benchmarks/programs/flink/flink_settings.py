"""The settings of both programs on Flink: two slots, state on the heap, a checkpoint to disk every second."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def flink_configuration(out: Path) -> Any:
    """Return a `pyflink.common.Configuration` with these settings. Call it when Flink can be imported."""
    from pyflink.common import Configuration

    configuration = Configuration()
    settings = {
        "parallelism.default": "2",
        "taskmanager.numberOfTaskSlots": "2",
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": "1s",
        "execution.checkpointing.dir": f"file://{out}/checkpoints",
        "execution.checkpointing.storage": "filesystem",
    }
    for key, value in settings.items():
        configuration.set_string(key, value)
    return configuration
