"""The job's `penstock.yaml`: the user's keys, and the keys that follow from the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from penstock_operator.api.flinkjob import rest_tls_secret
from penstock_operator.api.types import format_duration
from penstock_operator.resources import program
from penstock_operator.resources.memory import container_limits
from penstock_operator.resources.names import (
    BLOCKS_PORT,
    CONF_DIR,
    DRIVER_PORT,
    MASTER_PORT,
    REST_PORT,
    TLS_FOLDER,
    TLS_KEYS,
    WORK_DIR,
    Owner,
)

if TYPE_CHECKING:
    from penstock_operator.api.autoscaling import Autoscaling
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.resources.incarnation import Incarnation

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml's writer, if PyYAML has it. It writes the same text ten times faster."""
CONFIG_ROLE = "config"
CONFIG_FILE = "penstock.yaml"
PARALLELISM_KEY = "parallelism"
PARALLELISM_VARIABLE = "PENSTOCK_PARALLELISM"
"""Environment variable of the master's container with the parallelism. Kubernetes reads its value whenever the
container starts.
"""

AUTOSCALER_KEYS = ("job.autoscaler.", "penstock.autoscaler.")
"""Prefixes of the keys that the operator can change in a running job."""

DEFAULTS: dict[str, Any] = {
    "execution.checkpointing.interval": "30s",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
}
"""Defaults for keys that the job's author does not set. Without checkpoints, a job could not recover."""


def configuration(spec: FlinkJobSpec) -> dict[str, Any]:
    """Return the flat configuration keys of a job. The operator's keys take precedence, and `api.validation` refuses
    them in a spec.

    The parallelism is not among the keys, because it is an argument of the master. The operator adds no new
    `penstock.…` keys. The image may have an older engine, and an engine refuses unknown keys of this kind. Settings for
    newer engines go into the environment of the container.
    """
    folder = f"{CONF_DIR}/{TLS_FOLDER}"
    certificate, key = (f"{folder}/{name}" for name in TLS_KEYS)
    elected = {"high-availability.type": "file"} if spec.master.replicas > 1 else {}
    tls = {"rest.ssl.certificate-file": certificate, "rest.ssl.key-file": key} if rest_tls_secret(spec) else {}
    return {
        **DEFAULTS,
        **container_limits(spec),
        **_utilizations(spec),
        **spec.configuration,
        **tls,
        **elected,
        **autoscaler_keys(spec),
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


def _utilizations(spec: FlinkJobSpec) -> dict[str, Any]:
    """Return the busy shares below and above which the autoscaler rescales the job. They follow from the target in the
    same proportions as the engine's defaults: 0.4 and 0.9 for 0.7. A spec may set other values.
    """
    target = spec.autoscaling.target
    if not spec.autoscaling.enabled:
        return {}
    return {
        "job.autoscaler.utilization.min": round(target * 4 / 7, 3),
        "job.autoscaler.utilization.max": round(target + (1 - target) * 2 / 3, 3),
    }


def autoscaler_keys(spec: FlinkJobSpec) -> dict[str, Any]:
    """Return the keys of the autoscaler, or nothing if it is off. An image with an engine without an autoscaler refuses
    them when the operator checks the program.
    """
    auto = spec.autoscaling
    if not auto.enabled:
        return {}
    return {
        "job.autoscaler.enabled": True,
        "job.autoscaler.vertex.min-parallelism": auto.min,
        "job.autoscaler.vertex.max-parallelism": auto.max or spec.job.max_parallelism,
        "job.autoscaler.utilization.target": auto.target,
        "job.autoscaler.metrics.window": format_duration(auto.window),
        "job.autoscaler.scale-down.interval": format_duration(auto.scale_down_after),
        "penstock.autoscaler.max-lag": format_duration(auto.max_lag),
        "penstock.autoscaler.mode": auto.mode,
    }


def autoscaler_configuration(spec: FlinkJobSpec, autoscaling: Autoscaling) -> dict[str, str]:
    """Return all keys of the autoscaler for a running job and a section `autoscaling`. The dict is empty if the autoscaler is off."""
    if not autoscaling.enabled:
        return {}
    keys = configuration(spec.model_copy(update={"autoscaling": autoscaling}))
    return {key: _text(value) for key, value in keys.items() if key.startswith(AUTOSCALER_KEYS)}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def render(keys: dict[str, Any]) -> str:
    """Return the keys as sorted YAML, so that equal configurations have equal text."""
    return str(yaml.dump(keys, Dumper=_DUMPER, sort_keys=True, default_flow_style=False, width=1000))


def config_map(owner: Owner, incarnation: Incarnation) -> dict[str, Any]:
    """Return the ConfigMap with the configuration of one incarnation, and with its program if the spec contains the
    program. The ConfigMap does not change while the incarnation runs.

    A new version of the operator may create other keys from the same spec. They take effect at the next start.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.config(incarnation.job_id, incarnation.revision), CONFIG_ROLE),
        "immutable": True,
        "data": {CONFIG_FILE: render(configuration(incarnation.spec)), **program.files(incarnation.spec)},
    }


def parallelism_map(owner: Owner, parallelism: int) -> dict[str, Any]:
    """Return the ConfigMap with the parallelism, the only setting that changes while an incarnation runs.

    A master that restarts after a rescale reads the new parallelism from it.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.parallelism, CONFIG_ROLE),
        "data": {PARALLELISM_KEY: str(parallelism)},
    }


def former_config_map(owner: Owner, incarnation: Incarnation) -> dict[str, Any]:
    """Return the ConfigMap for an incarnation that was started when a job had only one ConfigMap. The operator creates
    it again if it was deleted.
    """
    keys = {**configuration(incarnation.spec), "parallelism.default": incarnation.parallelism}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.former_config),
        "data": {CONFIG_FILE: render(keys)},
    }


def with_parallelism(text: str, parallelism: int) -> str:
    r"""Return the `penstock.yaml` of an incarnation with only one ConfigMap, with a new parallelism for a live rescale.
    All other keys are unchanged.

    >>> with_parallelism("a.b: 1\nparallelism.default: 2\n", 4)
    'a.b: 1\nparallelism.default: 4\n'
    """
    return render({**(yaml.safe_load(text) or {}), "parallelism.default": parallelism})
