"""A real one-node Kubernetes on one bare Linux machine, without a registry, a hypervisor or systemd.

It has two levels:

- ``control``: etcd, API server, controller manager and scheduler as processes on 127.0.0.1. It needs no root and has no
  pods. Many tests need only this API.
- ``node``: also containerd, kubelet, kube-proxy and CoreDNS, in separate namespaces, so that real
  containers run. It needs root on Linux.

    with Cluster("mine", level="node") as cluster:
        cluster.load("localhost/penstock-job:dev")
        cluster.kubectl("apply", "-f", "-", stdin=manifest)

Each module has one responsibility:

- ``plan`` describes a cluster and has no side effects.
- ``pki``, ``components`` and ``nodeconfig`` turn a plan into files and command lines.
- ``preflight`` checks whether the machine can host the cluster.
- ``host`` changes the machine and reverts the changes.
- ``supervisor`` runs the processes. At the node level it does so inside the namespaces that ``node`` prepares.
- ``store`` loads images.
- ``cluster`` combines all of this, and tests use it.
- ``__main__`` is the command line.
"""

from tools.devcluster.cluster import Cluster

__all__ = ["Cluster"]
