"""What surrounds the pods: accounts, Services, disruption budgets, the NetworkPolicy, the Ingress."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock_operator.resources.incarnation import FORMER_DOORS
from penstock_operator.resources.names import (
    BLOCKS_PORT,
    DRIVER_PORT,
    JOB,
    MASTER_PORT,
    REST_PORT,
    SECRET_KEYS,
    Owner,
)
from penstock_operator.resources.pods import incarnation_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.resources.incarnation import Incarnation


@dataclass(frozen=True)
class Monitors:
    """How the platform's Prometheus finds PodMonitors, and how often it is to ask."""

    interval: str = "30s"
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OperatorIdentity:
    """Where the operator itself runs, which the job's NetworkPolicy lets in; and what the platform adds to every job."""

    namespace: str = "penstock-system"
    app: str = "penstock-operator"
    monitors: Monitors | None = None
    """None: no PodMonitors; there may be nobody who knows the kind."""


def children(
    owner: Owner, desired: FlinkJobSpec, operator: OperatorIdentity, incarnation: Incarnation
) -> list[dict[str, Any]]:
    """Everything but Secret, configuration and Deployments, in the order in which it is applied."""
    objects = [
        *service_accounts(owner, desired),
        *services(owner, incarnation),
        disruption_budget(owner, "worker", {"maxUnavailable": 1}),
    ]
    if desired.network_policy.enabled:
        objects.append(network_policy(owner, desired, operator))
    if desired.ingress is not None:
        objects.append(ingress(owner, desired))
    if operator.monitors is not None:
        objects.append(pod_monitor(owner, operator.monitors))
    return objects


def optional_children(owner: Owner) -> list[tuple[str, str]]:
    """(kind, name) of objects that are removed when the spec no longer asks for them."""
    return [
        ("NetworkPolicy", owner.name),
        ("Ingress", owner.rest),
    ]


def service_accounts(owner: Owner, spec: FlinkJobSpec) -> list[dict[str, Any]]:
    """Of master and worker; none where the spec names one that is there, which is nobody's to change."""
    if spec.service_account.name is not None:
        return []
    return [service_account(owner, role, spec) for role in ("master", "worker")]


def service_account(owner: Owner, role_name: str, spec: FlinkJobSpec) -> dict[str, Any]:
    """An account of the job's own, without any rights in Kubernetes."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": owner.metadata(f"{owner.name}-{role_name}", role_name, **spec.service_account.annotations),
        "automountServiceAccountToken": False,
    }


def secret(owner: Owner, rest_token: str, spark_secret: str) -> dict[str, Any]:
    """The token of the REST API, and the secret by which master and workers know each other."""
    values = dict(zip(SECRET_KEYS, (rest_token, spark_secret), strict=True))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": owner.metadata(owner.secrets),
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }


def services(owner: Owner, incarnation: Incarnation) -> list[dict[str, Any]]:
    """By which workers and people find the master of this incarnation, and no other one that is there as well."""
    return [master_service(owner, incarnation), rest_service(owner, incarnation)]


def _master_of(owner: Owner, incarnation: Incarnation) -> dict[str, str]:
    return owner.selector("master") | incarnation_labels(incarnation.job_id)


def master_service(owner: Owner, incarnation: Incarnation) -> dict[str, Any]:
    """Workers find the master by it, ready or not; those of former operators are headless."""
    ports = {"spark-master": MASTER_PORT, "spark-driver": DRIVER_PORT, "spark-blocks": BLOCKS_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(owner.door(incarnation.door), "master"),
        "spec": {
            **({"clusterIP": "None"} if incarnation.door in FORMER_DOORS else {}),
            "publishNotReadyAddresses": True,
            "selector": _master_of(owner, incarnation),
            "ports": [{"name": name, "port": port, "targetPort": port} for name, port in ports.items()],
        },
    }


def rest_service(owner: Owner, incarnation: Incarnation) -> dict[str, Any]:
    """REST API and dashboard of the master; also of one that is not ready, which says why (SUSPENDED, say)."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(owner.rest, "master"),
        "spec": {
            "publishNotReadyAddresses": True,
            "selector": _master_of(owner, incarnation),
            "ports": [{"name": "rest", "port": REST_PORT, "targetPort": "rest"}],
        },
    }


def disruption_budget(owner: Owner, role_name: str, limit: dict[str, Any]) -> dict[str, Any]:
    """Keeps drains from taking several pods at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owner.metadata(f"{owner.name}-{role_name}", role_name),
        "spec": {
            **limit,
            # A pod that does not run protects nothing, and would keep its node from being drained for ever.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": owner.selector(role_name)},
        },
    }


def network_policy(owner: Owner, spec: FlinkJobSpec, operator: OperatorIdentity) -> dict[str, Any]:
    """Within the job everything; from outside REST, and only for the operator and those the spec names."""
    from_operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operator.namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": operator.app}},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owner.metadata(owner.name),
        "spec": {
            "podSelector": {"matchLabels": {JOB: owner.name}},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": {JOB: owner.name}}}]},
                {
                    "from": [from_operator, *(dict(peer) for peer in spec.network_policy.rest_from)],
                    "ports": [{"port": REST_PORT, "protocol": "TCP"}],
                },
            ],
        },
    }


def pod_monitor(owner: Owner, monitors: Monitors) -> dict[str, Any]:
    """Tells Prometheus to read the master's metrics, with the token of the job."""
    metadata = owner.metadata(owner.name)
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {**metadata, "labels": {**monitors.labels, **metadata["labels"]}},
        "spec": {
            "selector": {"matchLabels": owner.selector("master")},
            "podMetricsEndpoints": [
                {
                    "port": "rest",
                    "path": "/metrics",
                    "interval": monitors.interval,
                    "authorization": {"credentials": {"name": owner.secrets, "key": SECRET_KEYS[0]}},
                }
            ],
        },
    }


def ingress(owner: Owner, spec: FlinkJobSpec) -> dict[str, Any]:
    """Makes REST API and dashboard reachable from outside the cluster."""
    wish = spec.ingress
    if wish is None:
        msg = "the spec asks for no Ingress"
        raise ValueError(msg)
    backend = {"service": {"name": owner.rest, "port": {"name": "rest"}}}
    path = {"path": wish.path, "pathType": wish.path_type, "backend": backend}
    body: dict[str, Any] = {"rules": [{"host": wish.host, "http": {"paths": [path]}}]}
    if wish.class_name:
        body["ingressClassName"] = wish.class_name
    if wish.tls_secret_name:
        body["tls"] = [{"hosts": [wish.host], "secretName": wish.tls_secret_name}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": owner.metadata(owner.rest, "master", **wish.annotations),
        "spec": body,
    }
