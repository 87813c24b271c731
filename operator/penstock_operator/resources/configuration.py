"""The job's `penstock.yaml`: the user's keys, and those that follow from the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from penstock_operator.resources.memory import container_limits
from penstock_operator.resources.names import (
    BLOCKS_PORT,
    CONF_DIR,
    DRIVER_PORT,
    HEALTH_PORT,
    MASTER_PORT,
    REST_PORT,
    WORK_DIR,
    Owner,
)

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec

DEFAULTS: dict[str, Any] = {
    "execution.checkpointing.interval": "30s",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
}
"""What a job gets if its author says nothing: without checkpoints there is nothing to recover from."""


def configuration(spec: FlinkJobSpec, parallelism: int) -> dict[str, Any]:
    """Flat keys; what the operator sets wins (and `api.validation` has refused to let the user set it)."""
    return {
        **DEFAULTS,
        **container_limits(spec),
        **spec.configuration,
        "parallelism.default": parallelism,
        "pipeline.max-parallelism": spec.job.max_parallelism,
        "taskmanager.numberOfTaskSlots": spec.worker.slots,
        "execution.checkpointing.dir": spec.storage.checkpoints,
        "execution.checkpointing.savepoint-dir": spec.storage.savepoints,
        "execution.shutdown-on-application-finish": False,
        "io.tmp.dirs": WORK_DIR,
        "rest.port": REST_PORT,
        "rest.bind-address": "0.0.0.0",
        "jobmanager.rpc.port": MASTER_PORT,
        "penstock.worker.health-port": HEALTH_PORT,
        "spark.driver.port": DRIVER_PORT,
        "spark.blockManager.port": BLOCKS_PORT,
        "security.rest.token-file": f"{CONF_DIR}/secrets/rest-token",
        "security.spark.secret-file": f"{CONF_DIR}/secrets/spark-secret",
    }


def render(keys: dict[str, Any]) -> str:
    """As YAML, sorted, so that equal configurations are equal texts."""
    return yaml.safe_dump(keys, sort_keys=True, default_flow_style=False, width=1000)


def config_map(owner: Owner, spec: FlinkJobSpec, parallelism: int) -> dict[str, Any]:
    """The ConfigMap. A live rescale changes it in place: a master that restarts must not fall back to the old one."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.config),
        "data": {"penstock.yaml": render(configuration(spec, parallelism))},
    }
