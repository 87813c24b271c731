"""Validation of a FlinkJob beyond its CRD. The API server has already checked the types and the CEL rules.

The operator reports a problem in the condition `Stalled`, with the field and the remedy. The running job is not
changed until the manifest is corrected.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from penstock.common.config.option_table import meant_key
from penstock_operator.api.cron import CronError, parse_cron
from penstock_operator.api.flinkcluster import FlinkClusterSpec
from penstock_operator.api.flinkjob import (
    MAX_FILES,
    SCRIPT_BYTES,
    TLS_ENABLED,
    TLS_SECRET,
    Deletion,
    FlinkJobSpec,
)
from penstock_operator.api.pod_template import check_pod_template
from penstock_operator.api.types import SCHEMES, format_duration
from penstock_operator.errors import Problem, SpecError
from penstock_operator.redaction import holds_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock_operator.api.flinkjob import GitSource, Source
    from penstock_operator.api.limits.own_identity import OwnIdentity

OWNED_KEYS: Mapping[str, str] = {
    "parallelism.default": "spec.job.parallelism",
    "pipeline.max-parallelism": "spec.job.maxParallelism",
    "execution.checkpointing.dir": "spec.storage.checkpoints",
    "state.checkpoints.dir": "spec.storage.checkpoints",
    "execution.checkpointing.savepoint-dir": "spec.storage.savepoints",
    "state.savepoints.dir": "spec.storage.savepoints",
    "taskmanager.numberOfTaskSlots": "spec.worker.slots",
    "high-availability.type": "spec.master.replicas",
    "high-availability": "spec.master.replicas",
    "execution.savepoint.path": "spec.job.initialSavepointPath",
    "execution.state-recovery.path": "spec.job.initialSavepointPath",
    "rest.ssl.certificate-file": "rest.ssl.secret-name",
    "rest.ssl.key-file": "rest.ssl.secret-name",
    "rest.ssl.ca-file": "the key ca.crt of the Secret",
    "job.autoscaler.enabled": "spec.autoscaling.enabled",
    "job.autoscaler.scaling.enabled": "spec.autoscaling.mode",
    "penstock.autoscaler.mode": "spec.autoscaling.mode",
    "job.autoscaler.vertex.min-parallelism": "spec.autoscaling.min",
    "job.autoscaler.vertex.max-parallelism": "spec.autoscaling.max",
    "job.autoscaler.utilization.target": "spec.autoscaling.target",
    "job.autoscaler.target.utilization": "spec.autoscaling.target",
    "penstock.autoscaler.max-lag": "spec.autoscaling.maxLag",
    "job.autoscaler.metrics.window": "spec.autoscaling.window",
    "job.autoscaler.scale-down.interval": "spec.autoscaling.scaleDownAfter",
}
"""Configuration keys that the operator sets, each with the setting to use instead."""
FIXED_KEYS: Mapping[str, str] = {
    "io.tmp.dirs": "The directory is always a volume of the pod.",
    "rest.bind-address": "The NetworkPolicy decides which clients may connect.",
    "rest.port": "The port is always 8081.",
    "rest.ssl.client-authentication": "Probes of Kubernetes have no client certificate.",
    "jobmanager.rpc.port": "The port is always 7077.",
    "penstock.worker.health-port": "The port is always 8082.",
}
"""Configuration keys that no setting replaces, each with the reason."""

_OWNED_PREFIXES = ("security.", "kubernetes.", "spark.authenticate", "spark.network.crypto", "spark.ssl.", "spark.ui.")


def parse_spec(raw: object) -> FlinkJobSpec:
    """Parse a spec. Raise `SpecError` with all problems if it is not valid."""
    try:
        spec = FlinkJobSpec.model_validate(raw)
    except ValidationError as error:
        raise SpecError(tuple(_from_pydantic(error))) from None
    problems = tuple(_problems(spec))
    if problems:
        raise SpecError(problems)
    return spec


def parse_cluster_spec(raw: object) -> tuple[FlinkClusterSpec, FlinkJobSpec]:
    """Parse the spec of a FlinkCluster. Also return the spec of a FlinkJob with the same pods, which has the same rules.

    Raises:
        SpecError: the spec is not valid. The error names all problems.
    """
    try:
        spec = FlinkClusterSpec.model_validate(raw)
    except ValidationError as error:
        raise SpecError(tuple(_from_pydantic(error, "flinkcluster"))) from None
    job = FlinkJobSpec.model_validate({**spec.fields_of_a_job(), "job": {"entry": "session"}})
    problems = [*_problems(job), *_storage_of_programs(spec.configuration), *_worker_autoscaling(spec)]
    if problems:
        raise SpecError(tuple(problems))
    return spec, job


def _worker_autoscaling(spec: FlinkClusterSpec) -> Iterator[Problem]:
    auto = spec.worker.autoscaling
    if auto is not None and auto.min > auto.max:
        remedy = f"Choose at most {auto.max}, or raise spec.worker.autoscaling.max."
        yield Problem("spec.worker.autoscaling.min", f"{auto.min} is more than the maximum {auto.max}", remedy)


def _storage_of_programs(configuration: Mapping[str, Any]) -> Iterator[Problem]:
    for key in configuration:
        if key.startswith("high-availability."):
            remedy = "Remove it. The programs are always stored below spec.storage.checkpoints."
            yield Problem(f"spec.configuration[{key!r}]", "this key is set by the operator", remedy)


def check_own_identity(spec: FlinkJobSpec, limits: OwnIdentity) -> tuple[Problem, ...]:
    """Return a problem for each storage that a job without its own keys uses and that the platform has not opened to
    such jobs.
    """
    paths = (spec.storage.checkpoints, spec.storage.savepoints, spec.job.initial_savepoint_path)
    named, endpoint = [path for path in paths if path], spec.configuration.get("s3.endpoint")
    if spec.storage.secret_name is not None:  # keys give access to object stores, never to the operator's file system
        named, endpoint = [path for path in named if path.startswith("file://")], None
    found = limits.problems(str(endpoint) if endpoint else None, *named)
    return tuple(Problem("spec.storage.secretName", str(problem), f"{problem.remedy}.") for problem in found)


def parse_deletion(raw: object) -> Deletion | None:
    """Parse only the section `deletion`, so that errors elsewhere in the spec do not matter. Return None if the
    section is not valid.

    >>> parse_deletion({"image": 7, "deletion": {"storage": "Delete"}}).storage
    'Delete'
    """
    if not isinstance(raw, dict):
        return None
    try:
        return Deletion.model_validate(raw.get("deletion") or {})
    except (ValidationError, ArithmeticError):
        return None


def _from_pydantic(error: ValidationError, kind: str = "flinkjob") -> Iterator[Problem]:
    for item in error.errors():
        yield Problem(".".join(["spec", *map(str, item["loc"])]), item["msg"], f"See kubectl explain {kind}.spec.")


def _problems(spec: FlinkJobSpec) -> Iterator[Problem]:
    yield from _job(spec)
    yield from _autoscaling(spec)
    yield from _storage(spec)
    yield from _configuration(spec.configuration)
    yield from check_pod_template(spec.pod_template, "spec.podTemplate")
    yield from check_pod_template(spec.master.pod_template, "spec.master.podTemplate")
    yield from check_pod_template(spec.worker.pod_template, "spec.worker.podTemplate")
    yield from _resources(spec)
    yield from _periodic(spec)
    yield from _durations(spec)


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
            "no savepoint is set to start from",
            "Set spec.job.initialSavepointPath to the savepoint.",
        )
    if (job.entry, job.script, job.sql).count(None) != 2:
        yield Problem(
            "spec.job.entry",
            "there must be exactly one of entry, script and sql",
            "Set entry to a program in the image, script to the text of a program, or sql to SQL statements.",
        )
    for field, text in (("script", job.script), ("sql", job.sql)):
        if text is not None and len(text.encode()) > SCRIPT_BYTES:
            yield Problem(
                f"spec.job.{field}",
                f"the text has {len(text.encode())} bytes, and {SCRIPT_BYTES} are allowed",
                "Build an image with the program, and set entry.",
            )
    if job.sql is not None and job.args:
        yield Problem("spec.job.args", "SQL statements have no arguments", "Write the values into spec.job.sql.")
    if job.source is not None:
        yield from _source(job.source, job.entry)
    if job.entry is not None and job.entry.startswith("-"):
        yield Problem(
            "spec.job.entry", f"{job.entry!r} looks like an option", "Name a script or package.module:function."
        )


_SOURCES = ("url", "files", "configMap", "git", "image")
_GIT_URL = re.compile(r"https?://[^@\s]+")
_FILE_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,200}")


def _source(source: Source, entry: str | None) -> Iterator[Problem]:
    field, kinds = "spec.job.source", " and ".join((", ".join(_SOURCES[:-1]), _SOURCES[-1]))
    values = (source.url, source.files, source.config_map, source.git, source.image)
    kinds_set = [name for name, value in zip(_SOURCES, values, strict=True) if value]
    if len(kinds_set) != 1:
        found = f"{' and '.join(kinds_set)} are set" if kinds_set else "it names no program"
        yield Problem(field, found, f"Set exactly one of {kinds}.")
    elif (source.url is None) != (source.sha256 is None):
        problem = "only a file at a url has a checksum" if source.url is None else "the checksum of the file is missing"
        yield Problem(f"{field}.sha256", problem, "Set url and sha256 together. sha256sum prints the checksum.")
    yield from file_problems(source.files, f"{field}.files")
    if source.git is not None:
        yield from _git(source.git, f"{field}.git")
    if entry is None:
        yield Problem(field, "entry is missing", "Set entry to the program in the source.")
    elif _leaves(entry):
        yield Problem("spec.job.entry", f"{entry!r} is not a path inside the source", "Write a path such as job.py.")
    elif source.files and entry.endswith((".py", ".sql")) and entry not in source.files:
        names = ", ".join(sorted(source.files)[:_NAMES_SHOWN])
        yield Problem("spec.job.entry", f"{entry!r} is not a file of the source", f"Name one of its files: {names}.")


_NAMES_SHOWN = 10


def _git(git: GitSource, field: str) -> Iterator[Problem]:
    if not _GIT_URL.fullmatch(git.url):
        remedy = "Write https://HOST/PATH. Put the user name and a token into a Secret, and set secretName."
        yield Problem(f"{field}.url", "only https and http are supported, without credentials in the URL", remedy)
    elif git.secret_name is not None and not git.url.startswith("https://"):
        yield Problem(f"{field}.secretName", "http would send the password in plain text", "Write an https URL.")
    if (git.commit is None) == (git.ref is None):
        remedy = "Set commit to a hash with 40 digits, or ref to a branch or tag."
        yield Problem(f"{field}.ref", "there must be exactly one of commit and ref", remedy)
    if _leaves(git.path):
        yield Problem(
            f"{field}.path", f"{git.path!r} is not a folder of the repository", "Write a path such as jobs/a."
        )


def file_problems(files: Mapping[str, str], field: str) -> Iterator[Problem]:
    """Yield a problem for each rule that the files of a program break."""
    for name in files:
        if not _FILE_NAME.fullmatch(name):
            remedy = "Use at most 200 letters, digits, dots, dashes and underscores, and no dot at the start."
            yield Problem(f"{field}.{name}", "this is not a name of a file", remedy)
    size = sum(len(text.encode(errors="replace")) for text in files.values())
    if len(files) > MAX_FILES or size > SCRIPT_BYTES:
        yield Problem(
            field,
            f"{len(files)} files with {size} bytes are too many, {MAX_FILES} files with {SCRIPT_BYTES} bytes are allowed",
            "Put the program into an archive and set source.url and source.sha256, or build an image.",
        )


def _leaves(path: str) -> bool:
    return path.startswith("/") or ".." in path.split("/")


_SHORTEST_WINDOW = timedelta(seconds=15)
"""Shortest window of the engine, which takes a sample every five seconds."""
_LEAST_MEMORY = 64 * 2**20
"""Memory in bytes that every worker needs. A number without a unit, such as 1000, means bytes."""


def _autoscaling(spec: FlinkJobSpec) -> Iterator[Problem]:
    auto, highest = spec.autoscaling, spec.job.max_parallelism
    largest = auto.max or highest
    if largest > highest:
        remedy = f"Choose at most {highest}."
        yield Problem("spec.autoscaling.max", f"{largest} is more than job.maxParallelism {highest}", remedy)
    if auto.min > largest:
        remedy = f"Choose at most {largest}, or raise spec.autoscaling.max."
        yield Problem("spec.autoscaling.min", f"{auto.min} is more than the maximum {largest}", remedy)
    yield from _autoscaling_memory(spec)
    if auto.window < _SHORTEST_WINDOW:
        found = f"{format_duration(auto.window)} is too short, because the metrics are sampled every 5s"
        yield Problem("spec.autoscaling.window", found, "Set it to at least 15s.")


def _autoscaling_memory(spec: FlinkJobSpec) -> Iterator[Problem]:
    auto, field = spec.autoscaling, "spec.autoscaling.memory"
    memory, own = auto.memory, spec.worker.resources.limits.get("memory")
    if memory.mode != "apply":
        return
    if not auto.enabled:
        remedy = (
            "Set spec.autoscaling.enabled to true, and spec.autoscaling.mode to recommend if the parallelism must stay."
        )
        yield Problem(f"{field}.mode", "the autoscaler that measures the memory is off", remedy)
    if spec.cluster is None and (own is None or quantity(own) <= 0):
        remedy = "Set spec.worker.resources.limits.memory, the memory of the first start."
        yield Problem(f"{field}.mode", "the workers have no memory limit that could be changed", remedy)
    for name, limit in (("min", memory.min), ("max", memory.max)):
        if limit is not None and quantity(limit) < _LEAST_MEMORY:
            yield Problem(f"{field}.{name}", f"{limit} is too little memory for a worker", "Write a unit, such as 1Gi.")
    if memory.max is None:
        yield Problem(f"{field}.max", "mode apply needs a maximum", "Set it, for example to 4Gi.")
    elif own is not None and quantity(memory.min or own) > quantity(memory.max):
        yield Problem(
            f"{field}.max",
            f"{memory.max} is less than the minimum {memory.min or own}",
            "Raise it, or lower spec.autoscaling.memory.min.",
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
            yield Problem(field, f"the operator cannot read the storage of {location!r}", f"Use one of {known}.")


def _configuration(configuration: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _rest_tls(configuration)
    for key, value in configuration.items():
        field = f"spec.configuration[{key!r}]"
        if key in OWNED_KEYS:
            yield Problem(field, "this key is set by the operator", f"Remove it and use {OWNED_KEYS[key]}.")
        elif key in FIXED_KEYS:
            yield Problem(field, "this key is set by the operator", f"Remove it. {FIXED_KEYS[key]}")
        elif key.startswith(_OWNED_PREFIXES):
            yield Problem(field, "keys with this prefix are set by the operator", "Remove it.")
        elif (meant := meant_key(key)) is not None:
            yield Problem(field, "this option does not exist", f"Did you mean {meant}?")
        elif not isinstance(value, str | int | float | bool):
            yield Problem(
                field,
                f"the value is a {type(value).__name__}",
                "Write flat keys with one value each: execution.checkpointing.interval: 10s.",
            )
        elif holds_secret(key, str(value)):
            yield Problem(
                field,
                "credentials do not belong in a manifest or a ConfigMap",
                "Put them in a Secret: spec.storage.secretName, or envFrom in spec.podTemplate.",
            )


_SECRET_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def _rest_tls(configuration: Mapping[str, Any]) -> Iterator[Problem]:
    enabled = str(configuration.get(TLS_ENABLED, "false")).strip().lower()
    if enabled not in ("true", "false"):
        yield Problem(f"spec.configuration['{TLS_ENABLED}']", f"{enabled!r} is not a boolean", "Write true or false.")
    name = str(configuration.get(TLS_SECRET, ""))
    if (name or enabled == "true") and not _SECRET_NAME.fullmatch(name):
        yield Problem(
            f"spec.configuration['{TLS_SECRET}']",
            f"{name!r} is not the name of a Secret",
            "Name a Secret of this namespace with tls.crt, tls.key and ca.crt, such as cert-manager writes.",
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
        yield Problem(
            "spec.snapshots.periodic.interval",
            f"{format_duration(periodic.interval)} is less than a second",
            "Set a longer interval.",
        )
    if periodic.cron is not None:
        try:
            parse_cron(periodic.cron)
        except CronError as error:
            yield Problem("spec.snapshots.periodic.cron", str(error), "Write five fields, like '0 3 * * *'.")


_SHORTEST = timedelta(seconds=1)


def _durations(spec: FlinkJobSpec) -> Iterator[Problem]:
    """Yield a problem for each timeout below one second, because every attempt would time out immediately."""
    times = {
        "spec.rollback.after": (
            spec.rollback.after,
            "Set a time in which a working revision can complete a checkpoint.",
        ),
        "spec.upgrade.savepointTimeout": (
            spec.upgrade.savepoint_timeout,
            "Set a timeout that is long enough for a savepoint.",
        ),
        "spec.health.window": (spec.health.window, "Set the period in which restarts are counted, such as 10m."),
        "spec.health.silence": (
            spec.health.silence,
            "Set the maximum time without a response from the master, such as 5m.",
        ),
    }
    if spec.deletion.savepoint:
        remedy = "Set a timeout that is long enough for a savepoint, or set deletion.savepoint to false."
        times["spec.deletion.timeout"] = (spec.deletion.timeout, remedy)
    for field, (value, remedy) in times.items():
        if value < _SHORTEST:
            yield Problem(field, f"{format_duration(value)} is less than a second", remedy)


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
    """Return a Kubernetes quantity as a number.

    >>> quantity("500m"), quantity("1Ki"), quantity(2)
    (0.5, 1024.0, 2.0)
    """
    text = str(value)
    number = text.rstrip("mkKMGTi")
    return float(number) * _FACTORS[text[len(number) :]]
