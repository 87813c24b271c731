"""What a real API server with its controllers lacks to run FlinkJobs: a kubelet, and masters in the pods.

Pods are real objects, made by the real Deployment controller; `Kubelet` says of them what a kubelet would say. `Masters`
runs one small job per master pod and serves Flink's REST; checkpoints and savepoints are real manifests in real storage,
written by the engine's own code.
"""

from tests.integration.operator.sim.kubelet import Kubelet
from tests.integration.operator.sim.masters import Behaviour, Masters
from tests.integration.operator.sim.site import NAME, ROOT, Site, condition, install_crds, is_true, open_site

__all__ = [
    "NAME",
    "ROOT",
    "Behaviour",
    "Kubelet",
    "Masters",
    "Site",
    "condition",
    "install_crds",
    "is_true",
    "open_site",
]
