"""Validation of pod templates. The CRD has no schema for them, which keeps it small, so this module checks them.

The check is an allow-list: it refuses every field that it does not name. So a new field of Kubernetes cannot weaken the
isolation before a developer has reviewed the field. The job's pods keep the *restricted* pod security profile, whatever
the template contains. A template cannot set host namespaces, host paths, privileges, another ServiceAccount or root.

The module also checks types, because the operator merges templates before the API server sees them. A list in place
of an object would otherwise fail every reconcile pass, when the operator builds the pods. A null value in a
template removes the value that the operator's template has in the same field.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock_operator.api.schema.shapes import (
    OBJECT,
    OBJECTS,
    STRING,
    STRINGS,
    TEXTS,
    list_of,
    of_fields,
    shape_problems,
)
from penstock_operator.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAIN_CONTAINER = "penstock"
INSTALLER = "penstock-requirements"
"""Name of the init container that installs `spec.job.requirements`, and of the volume that it fills."""
CONFIG_VOLUME = "config"

_POD = {
    "affinity",
    "activeDeadlineSeconds",
    "containers",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "imagePullSecrets",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priorityClassName",
    "readinessGates",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "securityContext",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
}
_POD_SECURITY = {"fsGroup", "fsGroupChangePolicy", "runAsGroup", "runAsUser", "supplementalGroups", "runAsNonRoot"}
_PROBES = {"livenessProbe", "readinessProbe", "startupProbe"}
_PROBE_TIMING = {
    "failureThreshold",
    "initialDelaySeconds",
    "periodSeconds",
    "successThreshold",
    "terminationGracePeriodSeconds",
    "timeoutSeconds",
}
_MAIN = {"name", "env", "envFrom", "volumeMounts", *_PROBES}
_CONTAINER = _MAIN | {
    "args",
    "command",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "ports",
    "resources",
    "restartPolicy",
    "securityContext",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "workingDir",
}
FETCHER = "penstock-source"
"""Name of the init container that fetches `spec.job.source`, and of the volume that it fills."""
_INSTALLER = {"name", "env", "envFrom", "resources", "volumeMounts"}
_CONTAINER_SECURITY = {"runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation"}
VOLUME_SOURCES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
_PROJECTED = {"configMap", "downwardAPI", "secret"}
"""Allowed sources of a projected volume. The other sources give tokens or certificates of an identity."""
_ACCOUNT_TOKEN = re.compile(r"-token-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_METADATA = {"annotations", "labels"}
_RESERVED_ENV = "PENSTOCK_"
_RESERVED_LABEL = "penstock.dev/"

_REASONS: dict[str, str] = {
    "hostPath": "the job could access a path of the node",
    "serviceAccountName": "jobs run under their own ServiceAccount; use spec.serviceAccount",
    "serviceAccount": "jobs run under their own ServiceAccount; use spec.serviceAccount",
    "hostNetwork": "the pod would share the node's network",
    "hostPID": "the pod would see the node's processes",
    "hostIPC": "the pod would share the node's memory",
    "privileged": "the container would have full access to the node",
    "capabilities": "all capabilities are dropped",
    "serviceAccountToken": "jobs get no token for the Kubernetes API",
}


_MERGED_BY_NAME = list_of({"name": STRING})
"""List whose items are merged by name."""
_CONTAINERS = list_of(
    {
        "args": STRINGS,
        "command": STRINGS,
        "env": _MERGED_BY_NAME,
        "envFrom": OBJECTS,
        "image": STRING,
        "name": STRING,
        **dict.fromkeys(_PROBES, OBJECT),
        "ports": _MERGED_BY_NAME,
        "resources": OBJECT,
        "securityContext": OBJECT,
        "volumeMounts": _MERGED_BY_NAME,
    }
)
_SHAPE = of_fields(
    {
        "metadata": of_fields({"labels": TEXTS, "annotations": TEXTS}),
        "spec": of_fields(
            {
                "affinity": OBJECT,
                "containers": _CONTAINERS,
                "dnsConfig": OBJECT,
                "hostAliases": OBJECTS,
                "imagePullSecrets": _MERGED_BY_NAME,
                "initContainers": _CONTAINERS,
                "nodeSelector": TEXTS,
                "overhead": OBJECT,
                "readinessGates": OBJECTS,
                "schedulingGates": _MERGED_BY_NAME,
                "securityContext": OBJECT,
                "tolerations": OBJECTS,
                "topologySpreadConstraints": OBJECTS,
                "volumes": list_of(
                    {
                        "name": STRING,
                        **dict.fromkeys(VOLUME_SOURCES - {"projected"}, OBJECT),
                        "projected": of_fields({"sources": OBJECTS}),
                    }
                ),
            }
        ),
    }
)


def check_pod_template(template: Mapping[str, Any], field: str) -> Iterator[Problem]:
    """Yield a problem with the field's path for everything in a pod template that is not allowed."""
    yield from _allowed(template, {"metadata", "spec"}, field)
    yield from shape_problems(template, _SHAPE, field)
    metadata = _mapping(template, "metadata")
    yield from _allowed(metadata, _METADATA, f"{field}.metadata")
    for kind in ("labels", "annotations"):
        for name in _mapping(metadata, kind):
            if str(name).startswith(_RESERVED_LABEL):
                yield _refused(f"{field}.metadata.{kind}", str(name), "this prefix belongs to the operator")
    yield from _pod(_mapping(template, "spec"), f"{field}.spec")


def _pod(spec: Mapping[str, Any], field: str) -> Iterator[Problem]:
    yield from _allowed(spec, _POD, field)
    security = _mapping(spec, "securityContext")
    yield from _allowed(security, _POD_SECURITY, f"{field}.securityContext")
    yield from _not_root(security, f"{field}.securityContext")
    for i, volume in _list(spec, "volumes"):
        yield from _volume(volume, f"{field}.volumes[{i}]")
    for i, container in _list(spec, "containers"):
        main = container.get("name") == MAIN_CONTAINER
        yield from _container(container, f"{field}.containers[{i}]", _MAIN if main else _CONTAINER)
        if main:
            for name in sorted(_PROBES & container.keys()):
                yield from _probe(_mapping(container, name), f"{field}.containers[{i}].{name}")
    for i, container in _list(spec, "initContainers"):
        is_of_operator = container.get("name") in (INSTALLER, FETCHER)
        yield from _container(container, f"{field}.initContainers[{i}]", _INSTALLER if is_of_operator else _CONTAINER)


def _container(container: Mapping[str, Any], field: str, allowed: set[str]) -> Iterator[Problem]:
    if not container.get("name"):
        yield Problem(field, "the container has no name", "Set a name. Containers are merged by name.")
    yield from _allowed(container, allowed, field)
    if allowed is _CONTAINER and not container.get("image"):
        yield Problem(
            f"{field}.image",
            "a container other than the main one needs an image",
            f"Set an image, or name the container {MAIN_CONTAINER!r} to change the main container.",
        )
    security = _mapping(container, "securityContext")
    yield from _allowed(security, _CONTAINER_SECURITY, f"{field}.securityContext")
    yield from _not_root(security, f"{field}.securityContext")
    if security.get("allowPrivilegeEscalation"):
        yield _refused(f"{field}.securityContext", "allowPrivilegeEscalation", "it must be false")
    for _, port in _list(container, "ports"):
        if port.get("hostPort"):
            yield _refused(f"{field}.ports", "hostPort", "a job must not use ports of the node")
    for name in sorted(_PROBES & container.keys()):
        yield from _no_hosts(container[name], f"{field}.{name}")
    for hook, action in _mapping(container, "lifecycle").items():
        yield from _no_hosts(action, f"{field}.lifecycle.{hook}")
    for i, source in _list(container, "envFrom"):
        yield from _no_account_token(_mapping(source, "secretRef"), "name", f"{field}.envFrom[{i}].secretRef")
    for i, env in _list(container, "env"):
        secret = _mapping(_mapping(env, "valueFrom"), "secretKeyRef")
        yield from _no_account_token(secret, "name", f"{field}.env[{i}].valueFrom.secretKeyRef")
        if str(env.get("name", "")).startswith(_RESERVED_ENV):
            yield _refused(f"{field}.env", str(env.get("name")), "names with this prefix are set by the operator")


def _probe(probe: Mapping[str, Any], field: str) -> Iterator[Problem]:
    """Check a probe of the main container. A job may change its timing, but not the request that it sends."""
    for key, value in probe.items():
        if key not in _PROBE_TIMING:
            yield _refused(field, key, "a job can change only the timing of the main container's probes")
        elif value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            yield Problem(
                f"{field}.{key}", f"it must be a whole number, not {value!r}", "Write a number of seconds or attempts."
            )


def _volume(volume: Mapping[str, Any], field: str) -> Iterator[Problem]:
    yield from _allowed(volume, VOLUME_SOURCES | {"name"}, field)
    if volume.get("name") == CONFIG_VOLUME:
        for source in VOLUME_SOURCES - {"projected"}:
            if volume.get(source) is not None:
                yield _refused(field, source, "this volume holds the job's configuration and secrets")
    for i, projected in _list(_mapping(volume, "projected"), "sources"):
        yield from _allowed(projected, _PROJECTED, f"{field}.projected.sources[{i}]")
        yield from _no_account_token(_mapping(projected, "secret"), "name", f"{field}.projected.sources[{i}].secret")
    yield from _no_account_token(_mapping(volume, "secret"), "secretName", f"{field}.secret")


def _no_account_token(named: Mapping[str, Any], key: str, field: str) -> Iterator[Problem]:
    """Refuse Secrets in which Kubernetes stores tokens of ServiceAccounts. Their names end in `-token-` and five
    characters.
    """
    if _ACCOUNT_TOKEN.search(str(named.get(key) or "")):
        yield _refused(field, f"{key}: {named[key]}", _REASONS["serviceAccountToken"])


def _no_hosts(node: Any, field: str) -> Iterator[Problem]:
    """Refuse other hosts in probes and hooks. The kubelet would call them from the node's network, where
    NetworkPolicies do not apply.
    """
    for kind in ("httpGet", "tcpSocket"):
        action = _mapping(node, kind) if isinstance(node, dict) else {}
        if action.get("host"):
            yield _refused(f"{field}.{kind}", "host", "the kubelet would call that host from the node's network")


def _not_root(security: Mapping[str, Any], field: str) -> Iterator[Problem]:
    if security.get("runAsNonRoot") is False:
        yield _refused(field, "runAsNonRoot: false", "jobs never run as root")
    for key in ("runAsUser", "runAsGroup"):
        if security.get(key) == 0:
            yield _refused(field, f"{key}: 0", "jobs never run as root")


def _allowed(node: Mapping[str, Any], allowed: set[str], field: str) -> Iterator[Problem]:
    for key in node:
        if key not in allowed:
            yield _refused(field, key, _REASONS.get(key, "it is not on the list of fields that a job may set"))


def _refused(field: str, key: str, reason: str) -> Problem:
    return Problem(f"{field}.{key}", f"not allowed: {reason}", "Remove it.")


def _mapping(node: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the object in a field. Return an empty object if the field is absent or has another type."""
    value = node.get(key)
    return value if isinstance(value, dict) else {}


def _list(node: Mapping[str, Any], key: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects in a list with their indexes. Skip other entries, because the shape check reports them."""
    value = node.get(key)
    for i, entry in enumerate(value if isinstance(value, list) else ()):
        if isinstance(entry, dict):
            yield i, entry
