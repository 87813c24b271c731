"""The configuration files of the node: containerd, the pods' network, kubelet, kube-proxy and CoreDNS.

The node lives in namespaces of a machine that others use too. It must therefore not change anything that the kernel has
only once (sysctls, limits of connection tracking). The machine can lack a registry, systemd, AppArmor and the
permission to lower an OOM score.
"""

from __future__ import annotations

import json
from pathlib import Path

from tools.devcluster.pki import kubeconfig
from tools.devcluster.plan import DOMAIN, NODE_NAME, Plan

PAUSE_IMAGE = "localhost/pause:1"
CNI_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
"""The directories of the CNI plugins in Debian and in the upstream distribution."""

CONTAINERD = """\
version = 2
root = "{images}"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  # root without CAP_SYS_RESOURCE, as in a container, may not lower a score
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{conf}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    discard_unpacked_layers = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""

COREFILE = """\
.:53 {{
  bind {node}
  errors
  ready {node}:8181
  kubernetes {domain} in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig} {context}
    pods insecure
    ttl 5
  }}
  cache 5
  template ANY ANY . {{
    rcode NXDOMAIN
  }}
}}
"""
"""CoreDNS has no upstream server. A name outside of the cluster gets an error immediately instead of a timeout."""


def write(plan: Plan) -> None:
    """Write the node's configuration files."""
    (plan.conf / "cni").mkdir(parents=True, exist_ok=True)
    (plan.conf / "containerd.toml").write_text(
        CONTAINERD.format(
            images=plan.images,
            socket=plan.containerd_socket,
            root=plan.root,
            pause=PAUSE_IMAGE,
            cni=next((path for path in CNI_DIRECTORIES if path.is_dir()), CNI_DIRECTORIES[0]),
            conf=plan.conf,
        )
    )
    (plan.conf / "Corefile").write_text(
        COREFILE.format(
            node=plan.node_address,
            domain=DOMAIN,
            kubeconfig=kubeconfig(plan, "coredns"),
            context=f"penstock-{plan.name}",
        )
    )
    (plan.conf / "resolv.conf").write_text("# no upstream\n")
    for name, content in (
        ("cni/10-bridge.conflist", _network(plan)),
        ("kubelet.yaml", _kubelet(plan)),
        ("proxy.yaml", _proxy(plan)),
    ):
        (plan.conf / name).write_text(json.dumps(content, indent=1))


def _network(plan: Plan) -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        # the host has a route to the pods, so masquerading is not necessary
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": plan.pod_range}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def _kubelet(plan: Plan) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": plan.node_address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plan.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(plan.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(plan.pki / "kubelet.key"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{plan.link}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [plan.node_address],
        "clusterDomain": DOMAIN,
        "resolvConf": str(plan.conf / "resolv.conf"),
        "containerRuntimeEndpoint": f"unix://{plan.containerd_socket}",
        # the node could not pull an image again after its garbage collection
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "nodeStatusUpdateFrequency": "10s",
        "syncFrequency": "10s",
        "volumePluginDir": str(plan.root / "volume-plugins"),
        "registerNode": True,
    }


def _proxy(plan: Plan) -> dict[str, object]:
    # connection tracking has one set of limits per kernel: 0 keeps them unchanged
    untouched = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig(plan, "proxy"))},
        "mode": "nftables",
        "nftables": {"minSyncPeriod": "0s"},
        "clusterCIDR": plan.pod_range,
        "hostnameOverride": NODE_NAME,
        "bindAddress": "0.0.0.0",
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": untouched,
    }
