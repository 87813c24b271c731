"""An API server with the CRDs of a Prometheus operator accepts the chart's and operator's objects, with the chart's rights."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from penstock_operator.reconcile.observe.difference import difference
from tests.integration.operator.sim import ROOT
from tests.integration.operator.test_rights import install_rights, kubeconfig_of
from tools.devcluster import binaries
from tools.gobuild import module_source

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.integration.operator.sim import Site
    from tools.devcluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
VERSION = "v0.85.0"
CHECKSUM = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
KINDS = ("podmonitors", "servicemonitors")
API = ["--api-versions", "monitoring.coreos.com/v1"]


@pytest.fixture(scope="module")
def monitored(control_plane: Cluster) -> Cluster:
    """Install the kinds of a Prometheus operator."""
    crds = module_source(PROMETHEUS_OPERATOR, VERSION, CHECKSUM) / "example" / "prometheus-operator-crd"
    for kind in KINDS:
        text = (crds / f"monitoring.coreos.com_{kind}.yaml").read_text()
        control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        control_plane.kubectl(
            "wait", "--for=condition=Established", f"crd/{kind}.monitoring.coreos.com", "--timeout=60s"
        )
    return control_plane


def test_the_charts_service_monitor_finds_the_operators_service(
    monitored: Cluster, play: Callable[[Callable[[Site], Awaitable[None]]], None]
) -> None:
    async def scenario(site: Site) -> None:
        helm = binaries.MODULE.ensure(["helm"]) / "helm"
        values = ["metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.labels.release=prometheus"]
        options = [part for value in values for part in ("--set", value)]
        command: list[str | Path] = [
            helm,
            "template",
            "penstock",
            ROOT / "charts/penstock-operator",
            "-n",
            site.namespace,
            *options,
            *API,
        ]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        wanted = [m for m in yaml.safe_load_all(text) if m and m["kind"] in ("ServiceMonitor", "Service")]
        for manifest in wanted:
            site.kubectl("create", "--validate=strict", "-f", "-", stdin=json.dumps(manifest))
        (monitor,) = (m for m in wanted if m["kind"] == "ServiceMonitor")
        live = stored(site, "servicemonitor", monitor["metadata"]["name"])
        assert difference(monitor["spec"], live["spec"]) is None
        selector = ",".join(f"{k}={v}" for k, v in monitor["spec"]["selector"]["matchLabels"].items())
        (service,) = json.loads(site.kubectl("get", "service", "-l", selector, "-o", "json"))["items"]
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports

    play(scenario)


def test_each_job_gets_a_pod_monitor_that_is_deleted_with_it(
    monitored: Cluster, play: Callable[[Callable[[Site], Awaitable[None]]], None]
) -> None:
    async def scenario(site: Site) -> None:
        rights = (
            f"watchNamespaces={{{site.namespace}}}",
            "rbac.aggregate=false",
            "metrics.jobPodMonitors.enabled=true",
        )
        install_rights(site, *rights, options=API)
        config = kubeconfig_of(site, "penstock-penstock-operator")
        monitors = json.dumps({"interval": "15s", "labels": {"release": "prometheus"}})
        site.start_operator(
            KUBECONFIG=str(config), PENSTOCK_LEASE="penstock-penstock-operator", PENSTOCK_JOB_POD_MONITORS=monitors
        )
        site.apply(site.manifest())
        await site.until(site.running, "the job is deployed")
        live = stored(site, "podmonitor", "weather")
        assert live["metadata"]["labels"]["release"] == "prometheus"
        (endpoint,) = live["spec"]["podMetricsEndpoints"]
        credentials = endpoint["authorization"]["credentials"]
        assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "15s")
        secret = stored(site, "secret", credentials["name"])
        assert secret["data"][credentials["key"]]
        selector = ",".join(f"{k}={v}" for k, v in live["spec"]["selector"]["matchLabels"].items())
        (master,) = json.loads(site.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
        names = {port["name"] for container in master["spec"]["containers"] for port in container.get("ports", ())}
        assert endpoint["port"] in names
        site.kubectl("delete", "fj/weather", "--timeout=60s")
        await site.until(lambda: absent(site), "the PodMonitor goes with its FlinkJob")
        log = (site.folder / "operator-0.log").read_text()
        assert "forbidden" not in log, log[-2000:]

    play(scenario)


def stored(site: Site, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(site.kubectl("get", kind, name, "-o", "json"))
    return found


async def absent(site: Site) -> bool:
    return site.kubectl("get", "podmonitor", "-o", "name").strip() == ""
