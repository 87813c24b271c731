"""The programs of the cluster: which there are, what is built and what Debian has.

Everything of Kubernetes' own comes from ``tools/k8s`` (one Go module, so that the programs share what they compile);
containerd, runc and the CNI plugins are Debian's, whose kernel they were tested with.
"""

from __future__ import annotations

from pathlib import Path

from tools.gobuild import GoModule

KUBERNETES = "1.35.4"
"""1.35 is the last minor that takes containerd 1.x, Debian 12's, and a host with cgroup v1."""

HELM = "3.20.2"

_MAJOR, _MINOR, _ = KUBERNETES.split(".")

_STAMPS = {
    # without these the server calls itself v0.0.0 and clients refuse to tell what it can do
    "k8s.io/component-base/version.gitVersion": f"v{KUBERNETES}",
    "k8s.io/component-base/version.gitMajor": _MAJOR,
    "k8s.io/component-base/version.gitMinor": _MINOR,
    "helm.sh/helm/v3/internal/version.version": f"v{HELM}",
    # what `helm template` takes for the cluster's version when it asks none
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": _MAJOR,
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": _MINOR,
}

CONTROL = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""What ``up --level control`` needs."""

NODE = (*CONTROL, "kubelet", "kube-proxy", "coredns", "pause")
"""What ``up --level node`` needs."""

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
    """Build what ``level`` (``control`` or ``node``) needs and was not built yet; return the programs' directory."""
    return MODULE.ensure(NODE if level == "node" else CONTROL)
