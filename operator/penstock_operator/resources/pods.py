"""The pods: the operator's template with the *restricted* security profile, merged with the user's templates.

Later templates take precedence over earlier templates:

1. the operator's base
2. spec.podTemplate
3. spec.master.podTemplate or spec.worker.podTemplate
4. fields that no template may change: ServiceAccount, security contexts, labels

Lists whose items have names are merged by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock_operator.api.pod_template import FETCHER, INSTALLER, MAIN_CONTAINER, VOLUME_SOURCES
from penstock_operator.resources import program
from penstock_operator.resources.names import CONF_DIR, INCARNATION, SECRET_KEYS, TLS_FOLDER, TLS_KEYS, WORK_DIR, Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from penstock_operator.api.flinkjob import FlinkJobSpec

FS_GROUP = 185
"""Group of the mounted files. It is the group of the base image."""


@dataclass(frozen=True)
class PodParts:
    """The differences between master, worker and check pods."""

    role: str
    args: list[str]
    resources: dict[str, Any]
    template: Mapping[str, Any]
    config: list[dict[str, Any]]
    """Projections that provide the file `penstock.yaml`, and the program if the spec contains it."""
    service_account: str
    env: list[dict[str, Any]] = field(default_factory=list)
    ports: list[dict[str, Any]] = field(default_factory=list)
    probes: dict[str, Any] = field(default_factory=dict)
    grace: int = 30
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    restart_policy: str | None = None
    tls_secret: str = ""
    """Secret with the certificate of the REST API that the pod serves."""
    spread: bool = False
    """Whether to prefer a node without another pod of this role."""


def pod_template(owner: Owner, spec: FlinkJobSpec, parts: PodParts, lost_node: timedelta) -> dict[str, Any]:
    """Return the metadata and the spec of a pod."""
    base = _base(owner, spec, parts, lost_node)
    merged = merge(merge(base, spec.pod_template), parts.template)
    metadata = merged.setdefault("metadata", {})
    metadata["labels"] = {**metadata.get("labels", {}), **owner.labels(parts.role), **parts.labels}
    if parts.annotations or metadata.get("annotations"):
        metadata["annotations"] = {**metadata.get("annotations", {}), **parts.annotations}
    pod = merged["spec"]
    pod["serviceAccountName"] = parts.service_account
    pod["automountServiceAccountToken"] = False
    pod["securityContext"] = {**pod.get("securityContext", {}), **_pod_security()}
    for group in ("containers", "initContainers"):
        for container in pod.get(group, ()):
            container["securityContext"] = {**container.get("securityContext", {}), **_container_security(container)}
    return merged


def _base(owner: Owner, spec: FlinkJobSpec, parts: PodParts, lost_node: timedelta) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": MAIN_CONTAINER,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": parts.args,
        "env": [*_environment(), *parts.env],
        "resources": parts.resources,
        "volumeMounts": [
            {"name": "config", "mountPath": CONF_DIR, "readOnly": True},
            {"name": "work", "mountPath": WORK_DIR},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **parts.probes,
    }
    if parts.ports:
        container["ports"] = parts.ports
    if spec.storage.secret_name:
        container["envFrom"] = [{"secretRef": {"name": spec.storage.secret_name}}]
    pod: dict[str, Any] = {
        "containers": [container],
        "terminationGracePeriodSeconds": parts.grace,
        "enableServiceLinks": False,
        "securityContext": {"fsGroup": FS_GROUP, "fsGroupChangePolicy": "OnRootMismatch"},
        "tolerations": _tolerations(lost_node),
        "volumes": [
            {
                "name": "config",
                "projected": {
                    "defaultMode": 0o440,
                    "sources": [*parts.config, _secrets(owner), *_certificate(parts.tls_secret)],
                },
            },
            {"name": "work", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    program.install(spec, pod, parts.resources)
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [s.to_manifest() for s in spec.image_pull_secrets]
    if parts.restart_policy:
        pod["restartPolicy"] = parts.restart_policy
    if parts.spread:
        pod["affinity"] = _on_other_nodes(owner, parts.role)
    return {"metadata": {}, "spec": pod}


def _on_other_nodes(owner: Owner, role: str) -> dict[str, Any]:
    """Return an affinity that prefers other nodes than those of the role's pods. A cluster may have only one node."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": owner.selector(role)}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def _environment() -> list[dict[str, Any]]:
    def of(path: str) -> dict[str, Any]:
        return {"fieldRef": {"fieldPath": path}}

    return [
        {"name": "PENSTOCK_CONF_DIR", "value": CONF_DIR},
        {"name": "PENSTOCK_WORK_DIR", "value": WORK_DIR},
        {"name": "PENSTOCK_POD_NAME", "valueFrom": of("metadata.name")},
        {"name": "PENSTOCK_NAMESPACE", "valueFrom": of("metadata.namespace")},
        {"name": "PENSTOCK_POD_IP", "valueFrom": of("status.podIP")},
        {"name": "HOME", "value": "/tmp"},
    ]


def _secrets(owner: Owner) -> dict[str, Any]:
    items = [{"key": key, "path": f"secrets/{key}"} for key in SECRET_KEYS]
    return {"secret": {"name": owner.secrets, "optional": True, "items": items}}


def _certificate(secret: str) -> list[dict[str, Any]]:
    """Return the volume source of the certificate. A pod waits for the Secret, because the source is not optional."""
    items = [{"key": key, "path": f"{TLS_FOLDER}/{key}"} for key in TLS_KEYS]
    return [{"secret": {"name": secret, "items": items}}] if secret else []


def _tolerations(lost_node: timedelta) -> list[dict[str, Any]]:
    seconds = int(lost_node.total_seconds())
    return [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in ("not-ready", "unreachable")
    ]


def _pod_security() -> dict[str, Any]:
    return {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def _container_security(container: Mapping[str, Any]) -> dict[str, Any]:
    security: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
    }
    if container["name"] in (MAIN_CONTAINER, INSTALLER, FETCHER):
        security["readOnlyRootFilesystem"] = True
    return security


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a template over another: maps by key, lists of named items by name. Other lists are concatenated.

    A null value in `over` removes the value in `base`, except for the fields in `_KEPT`, without which no pod can be built. A
    volume with another kind of source replaces the volume of the same name.

    >>> merge({"a": [{"name": "x", "v": 1}]}, {"a": [{"name": "x", "v": 2}, {"name": "y"}]})
    {'a': [{'name': 'x', 'v': 2}, {'name': 'y'}]}
    >>> merge({"tolerations": [{"key": "t"}], "env": []}, {"tolerations": None, "env": None})
    {'env': []}
    """
    out = dict(base)
    for key, value in over.items():
        mine = out.get(key)
        if value is None:
            if key not in _KEPT:
                out.pop(key, None)
            continue
        if isinstance(mine, dict) and isinstance(value, dict):
            out[key] = merge(mine, value)
        elif isinstance(mine, list) and isinstance(value, list):
            out[key] = merge_lists(mine, value, _volume if key == "volumes" else merge)
        else:
            out[key] = _copy(value)
    return out


def _copy(value: Any) -> Any:
    """Return a deep copy without null fields."""
    if isinstance(value, dict):
        return {key: _copy(entry) for key, entry in value.items() if entry is not None}
    return [_copy(entry) for entry in value] if isinstance(value, list) else value


_KEPT = frozenset(
    [
        "annotations",
        "containers",
        "env",
        "envFrom",
        "labels",
        "metadata",
        "name",
        "securityContext",
        "spec",
        "volumeMounts",
        "volumes",
    ]
)
"""Fields that a null value does not remove."""


def _volume(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two volumes. The new source replaces the old source, because a volume has only one source."""
    sources = {key for key in VOLUME_SOURCES if over.get(key) is not None}
    return merge({key: value for key, value in base.items() if not sources or key in {"name", *sources}}, over)


def merge_lists(
    base: list[Any], over: list[Any], laid_over: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
) -> list[Any]:
    """Merge lists of named items by name, and concatenate other lists. `laid_over` merges two items with the same
    name.
    """
    if not all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in [*base, *over]):
        return [*base, *(_copy(item) for item in over if item not in base)]
    named = {item["name"]: item for item in base}
    for item in over:
        named[item["name"]] = laid_over(named.get(item["name"], {}), item)
    return list(named.values())


def incarnation_labels(job_id: str) -> dict[str, str]:
    """Return the label that distinguishes the pods of different incarnations."""
    return {INCARNATION: job_id}
