"""The processes of a cluster: their command lines, and the condition on which each of them starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.devcluster.pki import kubeconfig
from tools.devcluster.plan import NODE_NAME, Plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Component:
    """A process of the cluster. It starts when ``ready`` returns true, and again whenever it ends.

    The supervisor terminates a process that ``keeps_data`` beyond the life of the cluster, and waits for its end. It kills the
    other processes.
    """

    name: str
    command: tuple[str, ...]
    ready: Callable[[], bool] = lambda: True
    keeps_data: bool = False


def components(plan: Plan, api_ready: Callable[[], bool]) -> list[Component]:
    """Return all processes of the cluster in their start order. ``api_ready`` returns whether the API server is ready."""

    def store_ready() -> bool:
        return plan.store_ready.exists() and api_ready()

    wanted = [
        Component("etcd", _etcd(plan)),
        Component("kube-apiserver", _api_server(plan)),
        Component("kube-controller-manager", _controller_manager(plan), api_ready),
        Component("kube-scheduler", _scheduler(plan), api_ready),
    ]
    if plan.level == "node":
        wanted += [
            Component("containerd", ("containerd", "--config", str(plan.conf / "containerd.toml")), keeps_data=True),
            Component("kubelet", _kubelet(plan), store_ready),
            Component("kube-proxy", (_program(plan, "kube-proxy"), f"--config={plan.conf / 'proxy.yaml'}"), api_ready),
            Component("coredns", (_program(plan, "coredns"), "-conf", str(plan.conf / "Corefile")), api_ready),
        ]
    return wanted


def _program(plan: Plan, name: str) -> str:
    return str(plan.binaries / name)


def _etcd(plan: Plan) -> tuple[str, ...]:
    clients = f"http://127.0.0.1:{plan.ports.etcd}"
    peers = f"http://127.0.0.1:{plan.ports.etcd_peer}"
    return (
        _program(plan, "etcd"),
        "--name=default",
        f"--data-dir={plan.root / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        # `down` deletes the data, so syncing it to disk would only cost time
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def _api_server(plan: Plan) -> tuple[str, ...]:
    pki = plan.pki
    command = [
        _program(plan, "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{plan.ports.etcd}",
        f"--secure-port={plan.ports.api}",
        # at the node level 0.0.0.0 is the node's own network namespace, which only the host can reach
        f"--bind-address={'0.0.0.0' if plan.level == 'node' else '127.0.0.1'}",
        f"--advertise-address={plan.node_address}",
        f"--service-cluster-ip-range={plan.service_range}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--token-auth-file={plan.conf / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-key-file={pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    if plan.level == "node":
        command += [
            f"--kubelet-client-certificate={pki / 'apiserver-kubelet.crt'}",
            f"--kubelet-client-key={pki / 'apiserver-kubelet.key'}",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            "--kubelet-preferred-address-types=InternalIP",
        ]
    else:
        # this level has no Service network, and the API server rejects a loopback address as an endpoint
        command.append("--endpoint-reconciler-type=none")
    return tuple(command)


def _controller_manager(plan: Plan) -> tuple[str, ...]:
    # Without a node, the addresses of pods are not allowed in endpoints. The controllers would retry and log every one forever.
    left_out = ("endpoints", "endpointslice", "endpointslice-mirroring") if plan.level == "control" else ()
    return (
        *_client(plan, "kube-controller-manager", kubeconfig(plan, "controller-manager")),
        f"--secure-port={plan.ports.controller_manager}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={plan.pki / 'service-account.key'}",
        f"--root-ca-file={plan.pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={plan.pki / 'ca.crt'}",
        f"--cluster-signing-key-file={plan.pki / 'ca.key'}",
        f"--cluster-cidr={plan.pod_range}",
        "--allocate-node-cidrs=true",
        "--node-cidr-mask-size=24",
        f"--service-cluster-ip-range={plan.service_range}",
        # the default of 20 calls per second would make a thousand Deployments take ten minutes
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        f"--controllers={','.join(['*', *(f'-{name}-controller' for name in left_out)])}",
    )


def _scheduler(plan: Plan) -> tuple[str, ...]:
    return (
        *_client(plan, "kube-scheduler", kubeconfig(plan, "scheduler")),
        f"--secure-port={plan.ports.scheduler}",
    )


def _client(plan: Plan, name: str, config: Path) -> tuple[str, ...]:
    """Return the arguments that the controller manager and the scheduler share."""
    return (
        _program(plan, name),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        # only one instance exists, so an election would only delay the start
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--cert-dir={plan.root / 'certs'}",
        "--profiling=false",
    )


def _kubelet(plan: Plan) -> tuple[str, ...]:
    return (
        _program(plan, "kubelet"),
        f"--config={plan.conf / 'kubelet.yaml'}",
        f"--kubeconfig={kubeconfig(plan, 'kubelet')}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={plan.node_address}",
        "--root-dir=/var/lib/kubelet",
        f"--cert-dir={plan.root / 'certs'}",
    )
