"""The programs of the cluster: which ones exist, which are built, and which come from Debian.

All programs of Kubernetes come from ``tools/k8s``. It is one Go module, so that the programs share compiled packages.
containerd, runc and the CNI plugins come from Debian, which tests them with its kernel.
"""

from __future__ import annotations

from pathlib import Path

from tools.gobuild import GoModule

KUBERNETES = "1.35.4"
"""Kubernetes 1.35 is the last minor version that supports containerd 1.x (Debian 12) and a host with cgroup v1."""

HELM = "3.20.2"

_MAJOR, _MINOR, _ = KUBERNETES.split(".")

_STAMPS = {
    # without these, the server reports the version v0.0.0, and clients refuse to detect its features
    "k8s.io/component-base/version.gitVersion": f"v{KUBERNETES}",
    "k8s.io/component-base/version.gitMajor": _MAJOR,
    "k8s.io/component-base/version.gitMinor": _MINOR,
    "helm.sh/helm/v3/internal/version.version": f"v{HELM}",
    # the version of the cluster that `helm template` assumes without a connection
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": _MAJOR,
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": _MINOR,
}

CONTROL = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""The programs of ``up --level control``."""

NODE = (*CONTROL, "kubelet", "kube-proxy", "coredns", "pause")
"""The programs of ``up --level node``."""

MODULE = GoModule(
    directory=Path(__file__).resolve().parent.parent / "k8s",
    programs={
        "etcd": "go.etcd.io/etcd/server/v3",
        **{
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubectl",
                "kubelet",
                "kube-proxy",
            )
        },
        "coredns": "./cmd/coredns",
        "pause": "./cmd/pause",
        "helm": "helm.sh/helm/v3/cmd/helm",
        "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform",
    },
    ldflags=" ".join(["-s -w", *(f"-X {name}={value}" for name, value in _STAMPS.items())]),
)


def ensure(level: str) -> Path:
    """Build the missing programs of ``level`` (``control`` or ``node``), and return the directory of the programs."""
    return MODULE.ensure(NODE if level == "node" else CONTROL)
