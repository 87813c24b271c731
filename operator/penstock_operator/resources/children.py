"""Objects around the pods: accounts, Services, disruption budgets, the NetworkPolicy, the Ingress."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock_operator.api.flinkjob import rest_tls_secret
from penstock_operator.resources.incarnation import FORMER_SERVICE_SUFFIXES
from penstock_operator.resources.names import (
    BLOCKS_PORT,
    CA_KEY,
    DRIVER_PORT,
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
    """Settings of the PodMonitors: the interval of the scrapes, and the labels by which the platform's Prometheus
    finds the PodMonitors.
    """

    interval: str = "30s"
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OperatorIdentity:
    """The operator's pods, which the job's NetworkPolicy admits, and the objects that the platform adds to every job."""

    namespace: str = "penstock-system"
    app: str = "penstock-operator"
    monitors: Monitors | None = None
    """Settings of the PodMonitors. None means that the operator creates no PodMonitors, because the cluster may not have this
    kind.
    """


def children(
    owner: Owner, desired: FlinkJobSpec, operator: OperatorIdentity, incarnation: Incarnation
) -> list[dict[str, Any]]:
    """Return all objects except the Secret, the configuration and the Deployments, in the order in which the operator
    applies them.
    """
    objects = [
        *service_accounts(owner, desired),
        *services(owner, incarnation),
        disruption_budget(owner, "worker", {"maxUnavailable": 1}),
    ]
    if incarnation.spec.master.replicas > 1:
        objects.append(disruption_budget(owner, "master", {"maxUnavailable": 1}))
    if desired.network_policy.enabled:
        objects.append(network_policy(owner, desired, operator))
    if desired.ingress is not None:
        objects.append(ingress(owner, desired, tls=bool(rest_tls_secret(incarnation.spec))))
    if operator.monitors is not None:
        objects.append(pod_monitor(owner, operator.monitors, rest_tls_secret(incarnation.spec)))
    return objects


def optional_children(owner: Owner) -> list[tuple[str, str]]:
    """Return kind and name of the objects that the operator deletes when the spec no longer contains them."""
    return [
        ("NetworkPolicy", owner.name),
        ("PodDisruptionBudget", owner.master),
        ("Ingress", owner.rest),
    ]


def service_accounts(owner: Owner, spec: FlinkJobSpec) -> list[dict[str, Any]]:
    """Return the ServiceAccounts of master and workers. Return no ServiceAccounts if the spec names an existing
    account, which the operator never changes.
    """
    if spec.service_account.name is not None:
        return []
    return [service_account(owner, role, spec) for role in ("master", "worker")]


def service_account(owner: Owner, role_name: str, spec: FlinkJobSpec) -> dict[str, Any]:
    """Return a ServiceAccount for the job, without any rights in Kubernetes."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": owner.metadata(f"{owner.name}-{role_name}", role_name, **spec.service_account.annotations),
        "automountServiceAccountToken": False,
    }


def secret(owner: Owner, rest_token: str, spark_secret: str) -> dict[str, Any]:
    """Return the Secret with the token of the REST API, and with the secret that authenticates master and workers to
    each other.
    """
    values = dict(zip(SECRET_KEYS, (rest_token, spark_secret), strict=True))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": owner.metadata(owner.secrets),
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }


def services(owner: Owner, incarnation: Incarnation) -> list[dict[str, Any]]:
    """Return the Services through which workers and users find the master of this incarnation, and no other master."""
    return [master_service(owner, incarnation), rest_service(owner, incarnation)]


def _master_of(owner: Owner, incarnation: Incarnation) -> dict[str, str]:
    return owner.selector("master") | incarnation_labels(incarnation.job_id)


def master_service(owner: Owner, incarnation: Incarnation) -> dict[str, Any]:
    """Return the Service through which workers find the master, even if it is not ready. It is headless for the
    suffixes that earlier versions of the operator used.
    """
    ports = {"spark-master": MASTER_PORT, "spark-driver": DRIVER_PORT, "spark-blocks": BLOCKS_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(owner.master_service(incarnation.service_suffix), "master"),
        "spec": {
            **({"clusterIP": "None"} if incarnation.service_suffix in FORMER_SERVICE_SUFFIXES else {}),
            "publishNotReadyAddresses": True,
            "selector": _master_of(owner, incarnation),
            "ports": [{"name": name, "port": port, "targetPort": port} for name, port in ports.items()],
        },
    }


def rest_service(owner: Owner, incarnation: Incarnation) -> dict[str, Any]:
    """Return the Service of the master's REST API and dashboard.

    It includes a master that is not ready, because its REST API reports the reason, for example SUSPENDED.
    """
    protocol = {"appProtocol": "https"} if rest_tls_secret(incarnation.spec) else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(owner.rest, "master"),
        "spec": {
            "publishNotReadyAddresses": True,
            "selector": _master_of(owner, incarnation),
            "ports": [{"name": "rest", "port": REST_PORT, "targetPort": "rest", **protocol}],
        },
    }


def disruption_budget(owner: Owner, role_name: str, limit: dict[str, Any]) -> dict[str, Any]:
    """Return a PodDisruptionBudget, which limits how many pods a node drain evicts at the same time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owner.metadata(f"{owner.name}-{role_name}", role_name),
        "spec": {
            **limit,
            # A pod that does not run needs no protection. It would otherwise block the drain of its node forever.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": owner.selector(role_name)},
        },
    }


def network_policy(owner: Owner, spec: FlinkJobSpec, operator: OperatorIdentity) -> dict[str, Any]:
    """Return the NetworkPolicy. It allows all traffic inside the job. The operator and the peers in the spec may
    connect to the REST port.
    """
    from_operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operator.namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": operator.app}},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owner.metadata(owner.name),
        "spec": {
            "podSelector": {"matchLabels": owner.selector()},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": owner.selector()}}]},
                {
                    "from": [from_operator, *(dict(peer) for peer in spec.network_policy.rest_from)],
                    "ports": [{"port": REST_PORT, "protocol": "TCP"}],
                },
            ],
        },
    }


def pod_monitor(owner: Owner, monitors: Monitors, tls_secret: str = "") -> dict[str, Any]:
    """Return the PodMonitor that makes Prometheus scrape the master with the job's token. Prometheus uses TLS if the
    master serves TLS.
    """
    ca = {"secret": {"name": tls_secret, "key": CA_KEY, "optional": True}}
    name = f"{owner.rest}.{owner.namespace}.svc"
    tls = {"scheme": "https", "tlsConfig": {"ca": ca, "serverName": name}} if tls_secret else {}
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
                    **tls,
                }
            ],
        },
    }


def ingress(owner: Owner, spec: FlinkJobSpec, *, tls: bool = False) -> dict[str, Any]:
    """Return the Ingress that exposes the REST API and the dashboard outside the cluster.

    Args:
        tls: whether the master serves TLS. ingress-nginx then needs an annotation. Other controllers read the Service's
            `appProtocol`.
    """
    backend_protocol = {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"} if tls else {}
    wish = spec.ingress
    if wish is None:
        msg = "the spec has no Ingress"
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
        "metadata": owner.metadata(owner.rest, "master", **{**backend_protocol, **wish.annotations}),
        "spec": body,
    }
