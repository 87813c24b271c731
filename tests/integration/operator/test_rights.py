"""The chart's rights are enough for everything the operator does. The operator in this test has no others."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integration.operator.sim import ROOT
from tools.devcluster import binaries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.integration.operator.sim import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RBAC = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}


def install_rights(site: Site, *values: str, options: Sequence[str] = ()) -> None:
    """Install the RBAC part of the chart."""
    helm = binaries.MODULE.ensure(["helm"]) / "helm"
    options = [*options, *(part for value in values for part in ("--set", value))]
    command: list[str | Path] = [
        helm,
        "template",
        "penstock",
        ROOT / "charts/penstock-operator",
        "-n",
        site.namespace,
        *options,
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [m for m in yaml.safe_load_all(text) if m and m["kind"] in RBAC]
    assert not [m for m in found if m["kind"].startswith("ClusterRole")], (
        "a namespaced installation must stay in its namespaces"
    )
    site.control.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(found))


def kubeconfig_of(site: Site, account: str) -> Path:
    """Write a kubeconfig with only the account's token."""
    token = site.kubectl("create", "token", account, "--duration=1h").strip()
    config = yaml.safe_load(Path(site.control.kubeconfig).read_text())
    config["users"] = [{"name": u["name"], "user": {"token": token}} for u in config["users"]]
    path = site.folder / "restricted.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_the_charts_rights_are_enough(play: Callable[[Callable[[Site], Awaitable[None]]], None]) -> None:
    async def scenario(site: Site) -> None:
        install_rights(site, f"watchNamespaces={{{site.namespace}}}", "rbac.aggregate=false")
        config = kubeconfig_of(site, "penstock-penstock-operator")
        site.start_operator(
            KUBECONFIG=str(config), PENSTOCK_LEASE="penstock-penstock-operator", PENSTOCK_INGRESS_DOMAINS="example.com"
        )
        site.apply(job_with_all_options(site))
        await site.until(site.running, "the job is deployed")
        await site.edit(image="job:2")
        await site.until(lambda: site.running(image="job:2"), "the job is upgraded")
        await site.edit(job={"parallelism": 3, "savepointTriggerNonce": 1})
        await site.until(lambda: site.running(parallelism=3), "the job is scaled up")
        await site.edit(job={"parallelism": 1}, ingress=None, networkPolicy={"enabled": False})
        await site.until(lambda: site.running(parallelism=1), "the job is scaled down")
        await site.until(lambda: absent(site, "netpol,ingress"), "objects that the spec no longer requests are removed")
        await site.edit(job={"state": "suspended"})
        await asyncio.sleep(5)
        site.kubectl("delete", "fsnap", "--all", "--wait=false")
        site.kubectl("delete", "fj/weather", "--timeout=60s")
        await site.until(lambda: absent(site, "fsnap"), "the snapshots are deleted")
        log = (site.folder / "operator-0.log").read_text()
        assert "forbidden" not in log, log[-2000:]
        assert "Traceback" not in log, log[-2000:]

    play(scenario)


def job_with_all_options(site: Site) -> dict[str, Any]:
    manifest = site.manifest()
    manifest["spec"]["ingress"] = {"host": "weather.example.com"}
    manifest["spec"]["snapshots"] = {"periodic": {"interval": "5s"}, "retention": {"count": 2}}
    return manifest


async def absent(site: Site, kinds: str) -> bool:
    return site.kubectl("get", kinds, "-o", "name").strip() == ""
