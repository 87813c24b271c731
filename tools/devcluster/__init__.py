"""A real one-node Kubernetes on one bare Linux machine, without a registry, a hypervisor or systemd.

Two levels:

- ``control``: etcd, API server, controller manager and scheduler as processes on 127.0.0.1. No root, no pods; for
  the many tests that need only the API.
- ``node``: the same plus containerd, kubelet, kube-proxy and CoreDNS, in namespaces of their own, so that real
  containers run. Needs root on Linux.

    with Cluster("mine", level="node") as cluster:
        cluster.load("localhost/penstock-job:dev")
        cluster.kubectl("apply", "-f", "-", stdin=manifest)

What a module may know: ``plan`` says what a cluster looks like and does nothing; ``pki``, ``components`` and
``nodeconfig`` turn a plan into files and command lines; ``preflight`` tells whether the machine can host it, ``host``
changes the machine and undoes it; ``supervisor`` runs the processes, at the node level inside the namespaces that
``node`` furnishes; ``store`` brings images in; ``cluster`` puts it all together and is what tests use; ``__main__`` is
the command line.
"""

from tools.devcluster.cluster import Cluster

__all__ = ["Cluster"]
