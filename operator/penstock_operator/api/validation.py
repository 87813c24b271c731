"""What a FlinkJob may say beyond what its CRD can express. The API server has checked types and CEL rules before.

A problem found here is reported in the condition `Stalled` with the field and the remedy; the job that runs is left
alone until the manifest is mended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from penstock_operator.api.cron import CronError, parse_cron
from penstock_operator.api.flinkjob import NO_STANDBYS, Deletion, FlinkJobSpec
from penstock_operator.api.pod_template import check_pod_template
from penstock_operator.api.types import SCHEMES
from penstock_operator.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock_operator.api.own_identity import OwnIdentity

OWNED_KEYS: Mapping[str, str] = {
    "parallelism.default": "spec.job.parallelism",
    "pipeline.max-parallelism": "spec.job.maxParallelism",
    "execution.checkpointing.dir": "spec.storage.checkpoints",
    "state.checkpoints.dir": "spec.storage.checkpoints",
    "execution.checkpointing.savepoint-dir": "spec.storage.savepoints",
    "state.savepoints.dir": "spec.storage.savepoints",
    "taskmanager.numberOfTaskSlots": "spec.worker.slots",
    "execution.savepoint.path": "spec.job.initialSavepointPath",
    "execution.state-recovery.path": "spec.job.initialSavepointPath",
    "io.tmp.dirs": "nothing: it is a volume of the pod",
    "rest.bind-address": "nothing: the NetworkPolicy says who may connect",
    "rest.port": "nothing: it is always 8081",
    "jobmanager.rpc.port": "nothing: it is always 7077",
    "penstock.worker.health-port": "nothing: it is always 8082",
    "high-availability.type": "nothing: there is one master, which is started again when it is lost",
}
"""Configuration keys that the operator sets → what to use instead."""

_OWNED_PREFIXES = ("security.", "kubernetes.", "spark.authenticate", "spark.network.crypto", "spark.ssl.", "spark.ui.")
_SECRET_WORDS = ("secret", "password", "access-key", "token")


def parse_spec(raw: object) -> FlinkJobSpec:
    """The spec, or SpecError with every problem in it."""
    try:
        spec = FlinkJobSpec.model_validate(raw)
    except ValidationError as error:
        raise SpecError(tuple(_from_pydantic(error))) from None
    problems = tuple(_problems(spec))
    if problems:
        raise SpecError(problems)
    return spec


def check_own_identity(spec: FlinkJobSpec, limits: OwnIdentity) -> tuple[Problem, ...]:
    """What a job without keys of its own asks for that the platform has not opened to such jobs."""
    paths = (spec.storage.checkpoints, spec.storage.savepoints, spec.job.initial_savepoint_path)
    named, endpoint = [path for path in paths if path], spec.configuration.get("s3.endpoint")
    if spec.storage.secret_name is not None:  # keys open object stores, never the operator's own file system
        named, endpoint = [path for path in named if path.startswith("file://")], None
    found = limits.problems(str(endpoint) if endpoint else None, *named)
    return tuple(Problem("spec.storage.secretName", str(problem), f"{problem.remedy}.") for problem in found)


def parse_deletion(raw: object) -> Deletion | None:
    """What a spec says of deletion, whatever else is wrong with it; None if that makes no sense.

    >>> parse_deletion({"image": 7, "deletion": {"storage": "Delete"}}).storage
    'Delete'
    """
    if not isinstance(raw, dict):
        return None
    try:
        return Deletion.model_validate(raw.get("deletion") or {})
    except (ValidationError, ArithmeticError):
        return None


def _from_pydantic(error: ValidationError) -> Iterator[Problem]:
    for item in error.errors():
        yield Problem(".".join(["spec", *map(str, item["loc"])]), item["msg"], "See kubectl explain flinkjob.spec.")


def _problems(spec: FlinkJobSpec) -> Iterator[Problem]:
    yield from _job(spec)
    if spec.master.replicas > 1:
        remedy = "Leave it at 1: a lost master is started again and goes on from its newest checkpoint."
        yield Problem("spec.master.replicas", NO_STANDBYS, remedy)
    yield from _storage(spec)
    yield from _configuration(spec.configuration)
    yield from check_pod_template(spec.pod_template, "spec.podTemplate")
    yield from check_pod_template(spec.master.pod_template, "spec.master.podTemplate")
    yield from check_pod_template(spec.worker.pod_template, "spec.worker.podTemplate")
    yield from _resources(spec)
    yield from _periodic(spec)


def _job(spec: FlinkJobSpec) -> Iterator[Problem]:
    job = spec.job
    if job.parallelism > job.max_parallelism:
        yield Problem(
            "spec.job.parallelism",
            f"{job.parallelism} is more than maxParallelism {job.max_parallelism}",
            f"Choose at most {job.max_parallelism}; maxParallelism is fixed for the life of the state.",
        )
    if job.savepoint_redeploy_nonce is not None and not job.initial_savepoint_path:
        yield Problem(
            "spec.job.savepointRedeployNonce",
            "there is no savepoint to start from",
            "Set spec.job.initialSavepointPath to it.",
        )
    if job.entry.startswith("-"):
        yield Problem(
            "spec.job.entry", f"{job.entry!r} reads like an option", "Name a script or package.module:function."
        )


def _storage(spec: FlinkJobSpec) -> Iterator[Problem]:
    locations = {
        "spec.storage.checkpoints": spec.storage.checkpoints,
        "spec.storage.savepoints": spec.storage.savepoints,
        "spec.job.initialSavepointPath": spec.job.initial_savepoint_path,
    }
    for field, location in locations.items():
        if location is not None and location.partition("://")[0] not in SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            yield Problem(field, f"{location!r} is on a storage that cannot be read", f"Use one of {known}.")


def _configuration(configuration: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in configuration.items():
        field = f"spec.configuration[{key!r}]"
        if key in OWNED_KEYS:
            yield Problem(field, "this key is set by the operator", f"Remove it and use {OWNED_KEYS[key]}.")
        elif key.startswith(_OWNED_PREFIXES):
            yield Problem(field, "keys with this prefix are set by the operator", "Remove it.")
        elif not isinstance(value, str | int | float | bool):
            yield Problem(
                field,
                f"the value is a {type(value).__name__}",
                "Write flat keys with one value each: execution.checkpointing.interval: 10s.",
            )
        elif any(word in key.lower() for word in _SECRET_WORDS):
            yield Problem(
                field,
                "credentials do not belong in a manifest or a ConfigMap",
                "Put them in a Secret: spec.storage.secretName, or envFrom in spec.podTemplate.",
            )


def _resources(spec: FlinkJobSpec) -> Iterator[Problem]:
    for role, resources in (("master", spec.master.resources), ("worker", spec.worker.resources)):
        for name, limit in resources.limits.items():
            request = resources.requests.get(name)
            if request is not None and quantity(request) > quantity(limit):
                yield Problem(
                    f"spec.{role}.resources.requests.{name}",
                    f"{request} is more than the limit {limit}",
                    "Raise the limit or lower the request.",
                )


def _periodic(spec: FlinkJobSpec) -> Iterator[Problem]:
    periodic = spec.snapshots.periodic
    if periodic is None:
        return
    if (periodic.interval is None) == (periodic.cron is None):
        yield Problem("spec.snapshots.periodic", "there must be exactly one of interval and cron", "Remove one.")
    if periodic.interval is not None and periodic.interval.total_seconds() < 1:
        yield Problem("spec.snapshots.periodic.interval", "less than a second", "Choose a longer one.")
    if periodic.cron is not None:
        try:
            parse_cron(periodic.cron)
        except CronError as error:
            yield Problem("spec.snapshots.periodic.cron", str(error), "Write five fields, like '0 3 * * *'.")


_FACTORS = {
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}


def quantity(value: str | int) -> float:
    """A Kubernetes quantity as a number.

    >>> quantity("500m"), quantity("1Ki"), quantity(2)
    (0.5, 1024.0, 2.0)
    """
    text = str(value)
    number = text.rstrip("mkKMGTi")
    return float(number) * _FACTORS[text[len(number) :]]
