"""Simulations of the parts that a real API server lacks to run FlinkJobs: a kubelet, and masters in the pods.

Pods are real objects of the real Deployment controller. `Kubelet` writes their status like a real kubelet. `Masters`
runs one small job per master pod and serves Flink's REST API. Checkpoints and savepoints are real manifests in real storage,
written by the engine's code.
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
