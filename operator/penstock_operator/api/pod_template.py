"""What a pod template may say. The CRD leaves it schemaless to stay small, so this is where it is checked.

The rule is an allow-list: what is not named here is refused, so that a new Kubernetes field cannot open a door that
nobody has looked at. The job's pods keep the *restricted* pod security profile, no matter what the template says: no
host namespaces or paths, no privileges, no other ServiceAccount, no root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from penstock_operator.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAIN_CONTAINER = "penstock"
_T = TypeVar("_T")

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
_MAIN = {"name", "env", "envFrom", "volumeMounts"}
_CONTAINER = _MAIN | {
    "args",
    "command",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "ports",
    "readinessProbe",
    "resources",
    "restartPolicy",
    "securityContext",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "workingDir",
}
_CONTAINER_SECURITY = {"runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation"}
_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
_METADATA = {"annotations", "labels"}
_RESERVED_ENV = "PENSTOCK_"
_RESERVED_LABEL = "penstock.dev/"

_WHY: dict[str, str] = {
    "hostPath": "a path of the node would be open to the job",
    "serviceAccountName": "jobs run under a ServiceAccount of their own; use spec.serviceAccount.annotations",
    "serviceAccount": "jobs run under a ServiceAccount of their own; use spec.serviceAccount.annotations",
    "hostNetwork": "the pod would share the node's network",
    "hostPID": "the pod would see the node's processes",
    "hostIPC": "the pod would share the node's memory",
    "privileged": "the container could do anything on the node",
    "capabilities": "all capabilities are dropped",
}


def check_pod_template(template: Mapping[str, Any], field: str) -> Iterator[Problem]:
    """Everything in a pod template that will not be taken, with the path of the field."""
    yield from _allowed(template, {"metadata", "spec"}, field)
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
    for i, volume in enumerate(_list(spec, "volumes")):
        yield from _volume(volume, f"{field}.volumes[{i}]")
    for i, container in enumerate(_list(spec, "containers")):
        main = container.get("name") == MAIN_CONTAINER
        yield from _container(container, f"{field}.containers[{i}]", _MAIN if main else _CONTAINER)
    for i, container in enumerate(_list(spec, "initContainers")):
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
    for port in _list(container, "ports"):
        if port.get("hostPort"):
            yield _refused(f"{field}.ports", "hostPort", "the node's ports are not the job's")
    for env in _list(container, "env"):
        if str(env.get("name", "")).startswith(_RESERVED_ENV):
            yield _refused(f"{field}.env", str(env.get("name")), "names with this prefix are set by the operator")


def _volume(volume: Mapping[str, Any], field: str) -> Iterator[Problem]:
    yield from _allowed(volume, _VOLUMES | {"name"}, field)
    for source in _list(_mapping(volume, "projected"), "sources"):
        if "serviceAccountToken" in source:
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
    return _typed(node, key, dict, dict)


def _list(node: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = _typed(node, key, list, list)
    return [entry for entry in found if isinstance(entry, dict)]


def _typed(node: Mapping[str, Any], key: str, kind: type[_T], empty: Callable[[], _T]) -> _T:
    value = node.get(key)
    return value if isinstance(value, kind) else empty()
