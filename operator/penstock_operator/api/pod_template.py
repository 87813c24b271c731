"""What a pod template may say. The CRD leaves it schemaless to stay small, so this is where it is checked.

The rule is an allow-list: what is not named here is refused, so that a new Kubernetes field cannot open a door that
nobody has looked at. The job's pods keep the *restricted* pod security profile, no matter what the template says: no
host namespaces or paths, no privileges, no other ServiceAccount, no root.

Shapes are checked as well, since templates are merged before the API server sees them: a list where an object belongs
would otherwise come to light only as the pods are built, in every pass. What is null removes what it is laid over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock_operator.api.shapes import OBJECT, OBJECTS, STRING, STRINGS, TEXTS, list_of, misshapen, of_fields
from penstock_operator.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAIN_CONTAINER = "penstock"
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
_METADATA = {"annotations", "labels"}
_RESERVED_ENV = "PENSTOCK_"
_RESERVED_LABEL = "penstock.dev/"

_WHY: dict[str, str] = {
    "hostPath": "a path of the node would be open to the job",
    "serviceAccountName": "jobs run under a ServiceAccount of their own; use spec.serviceAccount",
    "serviceAccount": "jobs run under a ServiceAccount of their own; use spec.serviceAccount",
    "hostNetwork": "the pod would share the node's network",
    "hostPID": "the pod would see the node's processes",
    "hostIPC": "the pod would share the node's memory",
    "privileged": "the container could do anything on the node",
    "capabilities": "all capabilities are dropped",
}


_NAMED = list_of({"name": STRING})
"""Items that are merged by their names."""
_CONTAINERS = list_of(
    {
        "args": STRINGS,
        "command": STRINGS,
        "env": _NAMED,
        "envFrom": OBJECTS,
        "image": STRING,
        "name": STRING,
        **dict.fromkeys(_PROBES, OBJECT),
        "ports": _NAMED,
        "resources": OBJECT,
        "securityContext": OBJECT,
        "volumeMounts": _NAMED,
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
                "imagePullSecrets": _NAMED,
                "initContainers": _CONTAINERS,
                "nodeSelector": TEXTS,
                "overhead": OBJECT,
                "readinessGates": OBJECTS,
                "schedulingGates": _NAMED,
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
    """Everything in a pod template that will not be taken, with the path of the field."""
    yield from _allowed(template, {"metadata", "spec"}, field)
    yield from misshapen(template, _SHAPE, field)
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
        yield from _container(container, f"{field}.initContainers[{i}]", _CONTAINER)


def _container(container: Mapping[str, Any], field: str, allowed: set[str]) -> Iterator[Problem]:
    if not container.get("name"):
        yield Problem(field, "the container has no name", "Name it; containers are merged by name.")
    yield from _allowed(container, allowed, field)
    if allowed is _CONTAINER and not container.get("image"):
        yield Problem(
            f"{field}.image",
            "a container besides the main one needs an image",
            f"Give one, or call the container {MAIN_CONTAINER!r} to change the job's own.",
        )
    security = _mapping(container, "securityContext")
    yield from _allowed(security, _CONTAINER_SECURITY, f"{field}.securityContext")
    yield from _not_root(security, f"{field}.securityContext")
    if security.get("allowPrivilegeEscalation"):
        yield _refused(f"{field}.securityContext", "allowPrivilegeEscalation", "it must be false")
    for _, port in _list(container, "ports"):
        if port.get("hostPort"):
            yield _refused(f"{field}.ports", "hostPort", "the node's ports are not the job's")
    for _, env in _list(container, "env"):
        if str(env.get("name", "")).startswith(_RESERVED_ENV):
            yield _refused(f"{field}.env", str(env.get("name")), "names with this prefix are set by the operator")


def _probe(probe: Mapping[str, Any], field: str) -> Iterator[Problem]:
    """What is asked is the operator's business, how patiently is anybody's."""
    for key, value in probe.items():
        if key not in _PROBE_TIMING:
            yield _refused(field, key, "of the main container's probes only the timing can be changed")
        elif value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            yield Problem(f"{field}.{key}", f"it must be a whole number, not {value!r}", "Write seconds, or how often.")


def _volume(volume: Mapping[str, Any], field: str) -> Iterator[Problem]:
    yield from _allowed(volume, VOLUME_SOURCES | {"name"}, field)
    if volume.get("name") == CONFIG_VOLUME:
        for source in VOLUME_SOURCES - {"projected"}:
            if volume.get(source) is not None:
                yield _refused(field, source, "this volume holds the job's configuration and secrets")
    for _, projected in _list(_mapping(volume, "projected"), "sources"):
        if "serviceAccountToken" in projected:
            yield _refused(f"{field}.projected", "serviceAccountToken", "jobs get no token for the Kubernetes API")


def _not_root(security: Mapping[str, Any], field: str) -> Iterator[Problem]:
    if security.get("runAsNonRoot") is False:
        yield _refused(field, "runAsNonRoot: false", "jobs never run as root")
    for key in ("runAsUser", "runAsGroup"):
        if security.get(key) == 0:
            yield _refused(field, f"{key}: 0", "jobs never run as root")


def _allowed(node: Mapping[str, Any], allowed: set[str], field: str) -> Iterator[Problem]:
    for key in node:
        if key not in allowed:
            yield _refused(field, key, _WHY.get(key, "it is not on the list of fields that a job may set"))


def _refused(field: str, key: str, why: str) -> Problem:
    return Problem(f"{field}.{key}", f"not allowed: {why}", "Remove it.")


def _mapping(node: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object in a field; empty if it is absent or its shape is refused."""
    value = node.get(key)
    return value if isinstance(value, dict) else {}


def _list(node: Mapping[str, Any], key: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects in a list, with their numbers in it; what is none is refused for its shape."""
    value = node.get(key)
    for i, entry in enumerate(value if isinstance(value, list) else ()):
        if isinstance(entry, dict):
            yield i, entry
