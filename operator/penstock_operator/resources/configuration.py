"""The job's `penstock.yaml`: the user's keys, and those that follow from the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from penstock_operator.resources.memory import container_limits
from penstock_operator.resources.names import (
    BLOCKS_PORT,
    CONF_DIR,
    DRIVER_PORT,
    MASTER_PORT,
    REST_PORT,
    WORK_DIR,
    Owner,
)

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.resources.incarnation import Incarnation

CONFIG_ROLE = "config"
CONFIG_FILE = "penstock.yaml"
PARALLELISM_KEY = "parallelism"
PARALLELISM_VARIABLE = "PENSTOCK_PARALLELISM"
"""Has it in the master's container: Kubernetes reads it anew whenever the container starts."""

DEFAULTS: dict[str, Any] = {
    "execution.checkpointing.interval": "30s",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
}
"""What a job gets if its author says nothing: without checkpoints there is nothing to recover from."""


def configuration(spec: FlinkJobSpec) -> dict[str, Any]:
    """Flat keys, without the parallelism, which is on the master's command line; what the operator sets wins (and `api.validation` has refused to let the user set it).

    An engine refuses `penstock.…` keys that it does not know, and the image of a revision may be older than the operator: the
    operator adds none of them. What a later engine is to be told goes into the environment of its container.
    """
    return {
        **DEFAULTS,
        **container_limits(spec),
        **spec.configuration,
        "pipeline.max-parallelism": spec.job.max_parallelism,
        "taskmanager.numberOfTaskSlots": spec.worker.slots,
        "execution.checkpointing.dir": spec.storage.checkpoints,
        "execution.checkpointing.savepoint-dir": spec.storage.savepoints,
        "execution.shutdown-on-application-finish": False,
        "io.tmp.dirs": WORK_DIR,
        "rest.port": REST_PORT,
        "rest.bind-address": "0.0.0.0",
        "jobmanager.rpc.port": MASTER_PORT,
        "spark.driver.port": DRIVER_PORT,
        "spark.blockManager.port": BLOCKS_PORT,
        "security.rest.token-file": f"{CONF_DIR}/secrets/rest-token",
        "security.spark.secret-file": f"{CONF_DIR}/secrets/spark-secret",
    }


def render(keys: dict[str, Any]) -> str:
    """As YAML, sorted, so that equal configurations are equal texts."""
    return yaml.safe_dump(keys, sort_keys=True, default_flow_style=False, width=1000)


def config_map(owner: Owner, incarnation: Incarnation) -> dict[str, Any]:
    """What an incarnation is configured with, from its start to its end, whatever operator looks after it.

    A new version of the operator may write other keys from the same spec: they come with the next start.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.config(incarnation.job_id, incarnation.revision), CONFIG_ROLE),
        "immutable": True,
        "data": {CONFIG_FILE: render(configuration(incarnation.spec))},
    }


def parallelism_map(owner: Owner, parallelism: int) -> dict[str, Any]:
    """The one thing that changes under a running incarnation: a master that restarts must not fall back to the former number."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.parallelism, CONFIG_ROLE),
        "data": {PARALLELISM_KEY: str(parallelism)},
    }


def former_config_map(owner: Owner, incarnation: Incarnation) -> dict[str, Any]:
    """For the pods of an incarnation that was started with the one ConfigMap of its job, if somebody has deleted that."""
    keys = {**configuration(incarnation.spec), "parallelism.default": incarnation.parallelism}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.former_config),
        "data": {CONFIG_FILE: render(keys)},
    }


def with_parallelism(text: str, parallelism: int) -> str:
    """A `penstock.yaml` of such an incarnation after a live rescale, with all else as it was.

    >>> with_parallelism("a.b: 1\nparallelism.default: 2\n", 4)
    'a.b: 1\nparallelism.default: 4\n'
    """
    return render({**(yaml.safe_load(text) or {}), "parallelism.default": parallelism})
