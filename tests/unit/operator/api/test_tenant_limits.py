"""Resources that a FlinkJob may request in addition to its pods: only those that the chart allows."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.api.limits.tenant_limits import TenantLimits
from penstock_operator.api.pod_template import MAIN_CONTAINER, check_pod_template

OPEN = TenantLimits(
    ingress_domains=("jobs.example.com",),
    ingress_classes=("nginx",),
    ingress_annotations=("nginx.ingress.kubernetes.io/rewrite-target",),
    pod_annotations=("backup.example.com/*",),
)


def spec(**more: Any) -> FlinkJobSpec:
    return FlinkJobSpec.model_validate(
        {
            "image": "job:1",
            "job": {"entry": "/opt/job/job.py"},
            "storage": {"checkpoints": "s3://bucket/checkpoints", "savepoints": "s3://bucket/savepoints"},
            **more,
        }
    )


def fields(limits: TenantLimits, **more: Any) -> list[str]:
    return [problem.field for problem in limits.problems(spec(**more))]


def test_jobs_get_no_ingress_by_default() -> None:
    (problem,) = TenantLimits().problems(spec(ingress={"host": "a.example.com"}))
    assert problem.field == "spec.ingress.host"
    assert "jobs.ingress.domains" in problem.remedy


@pytest.mark.parametrize("host", ["jobs.example.com", "a.jobs.example.com", "A.B.Jobs.Example.com"])
def test_hosts_below_an_allowed_domain_are_accepted(host: str) -> None:
    assert not fields(OPEN, ingress={"host": host, "className": "nginx"})


@pytest.mark.parametrize(
    "host",
    ["example.com", "evil-jobs.example.com", "jobs.example.com.evil.org", "*", "*.jobs.example.com", "a..jobs.example.com", "x/.jobs.example.com"],
)  # fmt: skip
def test_other_hosts_are_refused(host: str) -> None:
    assert fields(OPEN, ingress={"host": host}) == ["spec.ingress.host"]


def test_classes_and_annotations_are_refused_unless_they_are_listed() -> None:
    rewrite = "nginx.ingress.kubernetes.io/rewrite-target"
    requested = {"host": "a.jobs.example.com", "annotations": {rewrite: "/$2"}, "path": "/jobs/weather(/|$)(.*)"}
    assert not fields(OPEN, ingress=requested)
    snippet = "nginx.ingress.kubernetes.io/configuration-snippet"
    assert fields(OPEN, ingress={**requested, "annotations": {snippet: "x"}, "className": "internal"}) == [
        "spec.ingress.className",
        f"spec.ingress.annotations.{snippet}",
    ]


@pytest.mark.parametrize("path", ["/a;b", "/{x}", "/a b", '/"', "/a\nb"])
def test_a_path_cannot_contain_configuration(path: str) -> None:
    assert fields(OPEN, ingress={"host": "jobs.example.com", "path": path}) == ["spec.ingress.path"]


@pytest.mark.parametrize("where", ["podTemplate", "master", "worker"])
@pytest.mark.parametrize(
    ("name", "is_open"),
    [
        ("team", True),
        ("prometheus.io/scrape", True),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", True),
        ("backup.example.com/volumes", True),
        ("iam.amazonaws.com/role", False),
        ("container.apparmor.security.beta.kubernetes.io/main", False),
        ("k8s.v1.cni.cncf.io/networks", False),
        ("sidecar.istio.io/inject", False),
    ],
)
def test_annotations_of_pods_are_limited(where: str, name: str, is_open: bool) -> None:
    template = {"metadata": {"annotations": {name: "x"}}}
    more = {where: template if where == "podTemplate" else {"podTemplate": template}}
    assert (not fields(OPEN, **more)) is is_open


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}, "sources[0].serviceAccountToken"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {}}]}}]}, "sources[0].clusterTrustBundle"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": {}}]}}]}, "sources[0].podCertificate"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "default-token-x7k2q"}}]}}]}, "secret.name: default-token-x7k2q"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "default-token-x7k2q"}}]}, "secret.secretName: default-token-x7k2q"),
        ({"containers": [{"name": MAIN_CONTAINER, "envFrom": [{"secretRef": {"name": "default-token-x7k2q"}}]}]}, "secretRef.name: default-token-x7k2q"),
        ({"containers": [{"name": "s", "image": "x", "livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}}]}, "livenessProbe.httpGet.host"),
        ({"containers": [{"name": "s", "image": "x", "readinessProbe": {"tcpSocket": {"host": "10.0.0.1", "port": 1}}}]}, "readinessProbe.tcpSocket.host"),
        ({"initContainers": [{"name": "s", "image": "x", "lifecycle": {"preStop": {"httpGet": {"host": "h"}}}}]}, "lifecycle.preStop.httpGet.host"),
    ],
)  # fmt: skip
def test_a_pod_template_cannot_mount_a_token_or_use_the_nodes_network(template: dict[str, Any], field: str) -> None:
    (problem,) = check_pod_template({"spec": template}, "spec.podTemplate")
    assert problem.field.endswith(field)


def test_projected_sources_with_objects_of_the_job_are_accepted() -> None:
    sources = [{"secret": {"name": "keys"}}, {"configMap": {"name": "c"}}, {"downwardAPI": {}}]
    template = {"spec": {"volumes": [{"name": "v", "projected": {"sources": sources}}]}}
    assert not list(check_pod_template(template, "f"))
