"""The chart: golden templates, rights on the allow-list, restricted pods, invalid values."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock_operator.kube.access import OPTIONAL, REQUIRED
from penstock_operator.kube.selector import parse_selector
from penstock_operator.process.config import from_environment
from penstock_operator.reconcile.presets.defaults import CONFIG_MAP_NAME, KEY, preset
from tools.devcluster import binaries

pytestmark = pytest.mark.timeout(1800)

ROOT = Path(__file__).parents[4]
CHART = ROOT / "charts/penstock-operator"
GOLDEN = Path(__file__).parent / "golden"

CASES: dict[str, list[str]] = {
    "default": [],
    "namespaced": ["watchNamespaces={team-a,team-b}", "replicas=1", "crds.install=false", "rbac.aggregate=false"],
    "sharded": [
        "shards[0].name=a",
        "shards[0].selector=penstock.dev/shard=a",
        "shards[1].name=rest",
        "shards[1].selector=penstock.dev/shard!=a",
    ],
    "full": [
        "image.digest=sha256:" + "a" * 64,
        "metrics.serviceMonitor.enabled=true",
        "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring",
        "serviceAccount.annotations.role=arn",
        "env[0].name=AWS_REGION",
        "env[0].value=eu-1",
        "priorityClassName=system-cluster-critical",
        "networkPolicy.egress.enabled=true",
        "networkPolicy.egress.rules[0].ports[0].port=443",
        "extraVolumes[0].name=ca",
        "extraVolumes[0].configMap.name=private-ca",
        "extraVolumeMounts[0].name=ca",
        "extraVolumeMounts[0].mountPath=/etc/ca",
        "probes.liveness.failureThreshold=9",
        "test.flinkJobSpec.image=job:1",
        "operator.traces.endpoint=http://collector.monitoring:4318",
    ],
}


@pytest.fixture(scope="session")
def helm() -> Path:
    return binaries.MODULE.ensure(["helm"]) / "helm"


def template(
    helm: Path, *values: str, check: bool = True, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    options = [*options, *(part for value in values for part in ("--set", value))]
    command: list[str | Path] = [helm, "template", "penstock", CHART, "--namespace", "penstock-system", *options]
    return subprocess.run(command, capture_output=True, text=True, check=check)


def parsed(text: str) -> list[dict[str, Any]]:
    """Return the manifests of a text. libyaml reads the long CRDs ten times faster."""
    return [m for m in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if m]


def rendered(helm: Path, *values: str) -> list[dict[str, Any]]:
    return parsed(template(helm, *values).stdout)


@pytest.mark.parametrize("case", CASES)
def test_templates_match_the_golden_files(helm: Path, case: str) -> None:
    """Run UPDATE_GOLDEN=1 pytest tests/unit/operator/installation/test_chart.py after an intended change, and review the difference."""
    found = [m for m in rendered(helm, *CASES[case]) if m["kind"] != "CustomResourceDefinition"]
    found.sort(key=lambda m: (m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]))
    text = yaml.safe_dump_all(found, width=110)
    path = GOLDEN / f"{case}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def rules_of_the_operator(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rules of all Roles that a binding grants to the operator's account."""
    bound = {
        (b["roleRef"]["kind"], b["roleRef"]["name"])
        for b in manifests
        if b["kind"] in ("RoleBinding", "ClusterRoleBinding")
        and any(s["name"] == "penstock-penstock-operator" for s in b["subjects"])
    }
    roles = [m for m in manifests if (m["kind"], m["metadata"]["name"]) in bound]
    roles = [m for m in roles if not m["metadata"]["name"].endswith("-leader")]
    assert roles
    return [rule for role in roles for rule in role["rules"]]


@pytest.mark.parametrize("case", CASES)
def test_the_operator_has_no_right_outside_of_the_list(helm: Path, case: str) -> None:
    for rule in rules_of_the_operator(rendered(helm, *CASES[case])):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                assert "*" not in (group, resource), rule
                extra = set(rule["verbs"]) - {**REQUIRED, **OPTIONAL}.get((group, resource), frozenset())
                assert not extra, f"{extra} on {group or 'core'}/{resource}"


@pytest.mark.parametrize("case", CASES)
def test_the_operator_holds_one_lease_in_its_own_namespace(helm: Path, case: str) -> None:
    with_leases = [
        (m["metadata"].get("namespace"), rule)
        for m in rendered(helm, *CASES[case])
        if m["kind"] in ("Role", "ClusterRole") and not m["metadata"]["name"].endswith("-test")
        for rule in m["rules"]
        if "leases" in rule["resources"]
    ]
    assert {namespace for namespace, _ in with_leases} == {"penstock-system"}
    operators = {m["metadata"]["name"] for m in rendered(helm, *CASES[case]) if m["kind"] == "Deployment"}
    assert all(rule["verbs"] == ["create"] or set(rule["resourceNames"]) == operators for _, rule in with_leases)


def test_every_shard_has_its_own_deployment_lease_and_selector(helm: Path) -> None:
    found = rendered(helm, *CASES["sharded"])
    seen = {}
    for manifest in (m for m in found if m["kind"] == "Deployment"):
        spec = manifest["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        env = {e["name"]: e.get("value") for e in container["env"]}
        assert env["PENSTOCK_LEASE"] == manifest["metadata"]["name"]
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
        seen[spec["selector"]["matchLabels"]["penstock.dev/operator-shard"]] = env["PENSTOCK_SELECTOR"]
        assert parse_selector(str(env["PENSTOCK_SELECTOR"])).text == env["PENSTOCK_SELECTOR"]
    assert seen == {"a": "penstock.dev/shard=a", "rest": "penstock.dev/shard!=a"}
    budgets = [m["spec"]["selector"]["matchLabels"] for m in found if m["kind"] == "PodDisruptionBudget"]
    assert [b["penstock.dev/operator-shard"] for b in budgets] == ["a", "rest"]
    (plain,) = [m for m in rendered(helm) if m["kind"] == "Deployment"]
    assert "penstock.dev/operator-shard" not in plain["spec"]["selector"]["matchLabels"], "it cannot be changed"


def test_secrets_can_be_limited_to_the_namespaces_of_jobs(helm: Path) -> None:
    found = rendered(helm, "rbac.secretNamespaces={team-a,team-b}")
    roles = [m for m in found if m["kind"] in ("Role", "ClusterRole") and "secrets" in str(m["rules"])]
    assert {(m["kind"], m["metadata"].get("namespace")) for m in roles} == {("Role", "team-a"), ("Role", "team-b")}
    bound = [m for m in found if m["kind"] == "RoleBinding" and m["metadata"]["name"].endswith("-secrets")]
    assert {m["metadata"]["namespace"] for m in bound} == {"team-a", "team-b"}


def test_the_operator_has_every_right_on_the_list(helm: Path) -> None:
    granted: dict[tuple[str, str], set[str]] = {}
    for rule in rules_of_the_operator(rendered(helm)):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                granted.setdefault((group, resource), set()).update(rule["verbs"])
    assert granted == {**REQUIRED, **OPTIONAL}


def test_a_list_of_namespaces_grants_no_rights_elsewhere(helm: Path) -> None:
    found = rendered(helm, *CASES["namespaced"])
    assert not [m for m in found if m["kind"].startswith("ClusterRole")]
    roles = [m for m in found if m["kind"] == "Role" and not m["metadata"]["name"].endswith(("-leader", "-test"))]
    assert {m["metadata"]["namespace"] for m in roles} == {"team-a", "team-b"}


def allows(manifests: list[dict[str, Any]], verb: str, resource: str, namespace: str) -> bool:
    """Return whether RBAC grants the operator's account that right on objects of any name, as an API server decides it."""
    account = {"kind": "ServiceAccount", "name": "penstock-penstock-operator", "namespace": "penstock-system"}
    roles = {
        (m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]): m for m in manifests if "Role" in m["kind"]
    }
    for binding in (m for m in manifests if m["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        where = binding["metadata"].get("namespace")
        if account not in binding["subjects"] or where not in (None, namespace):
            continue
        kind = binding["roleRef"]["kind"]
        role = roles[kind, where if kind == "Role" else None, binding["roleRef"]["name"]]
        for rule in role["rules"]:
            if (
                not rule.get("resourceNames")
                and {verb, "*"} & {*rule["verbs"]}
                and {resource, "*"} & {*rule["resources"]}
            ):
                return True
    return False


@pytest.mark.parametrize(
    ("values", "readable"),
    [
        (["watchNamespaces={team-a,team-b}"], {"team-a", "team-b"}),
        (["rbac.secretNamespaces={team-a}"], {"team-a"}),
        ([], {"team-a", "team-b", "kube-system", "penstock-system"}),
    ],
    ids=["namespaced", "limited Secrets", "cluster-wide"],
)
def test_secrets_are_readable_by_name_in_the_namespaces_of_jobs_only(
    helm: Path, values: list[str], readable: set[str]
) -> None:
    found = rendered(helm, *values)
    everywhere = ("team-a", "team-b", "kube-system", "penstock-system")
    assert {namespace for namespace in everywhere if allows(found, "get", "secrets", namespace)} == readable
    for verb in ("list", "watch", "delete", "deletecollection", "update"):
        assert not [namespace for namespace in everywhere if allows(found, verb, "secrets", namespace)], verb


@pytest.mark.parametrize("case", CASES)
def test_pods_are_restricted(helm: Path, case: str) -> None:
    for manifest in rendered(helm, *CASES[case]):
        if manifest["kind"] not in ("Deployment", "Pod"):
            continue
        pod = manifest["spec"]["template"]["spec"] if manifest["kind"] == "Deployment" else manifest["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("replicas=0", "replicas"),
        ("replica=2", "replica"),
        ("image.digest=sha256:short", "digest"),
        ("operator.resync=soon", "resync"),
        ("shards[0].name=a", "selector"),
        ("shards[0].name=UPPER", "name"),
        ("operator.logLevel=LOUD", "logLevel"),
        ("watchNamespaces={UPPER}", "watchNamespaces"),
        ("securityContext.allowPrivilegeEscalation=true", "allowPrivilegeEscalation"),
        ("podSecurityContext.runAsNonRoot=false", "runAsNonRoot"),
        ("priorityClass.value=2000000000", "value"),
        ("probes.liveness.exec.command={true}", "exec"),
    ],
)
def test_invalid_values_are_refused(helm: Path, value: str, words: str) -> None:
    done = template(helm, value, check=False)
    assert done.returncode != 0
    assert words in done.stderr


def one(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [m for m in manifests if m["kind"] == kind]
    return found


def test_the_operator_has_priority_over_jobs_and_its_replicas_are_spread(helm: Path) -> None:
    found = rendered(helm)
    pod = one(found, "Deployment")["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == one(found, "PriorityClass")["metadata"]["name"]
    assert one(found, "PriorityClass")["value"] == 1_000_000
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    labels = one(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()
    assert one(found, "PodDisruptionBudget")["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_priority_and_spread_are_configurable(helm: Path) -> None:
    found = rendered(helm, "priorityClass.create=false", "topologySpreadConstraints[0].topologyKey=zone")
    pod = one(found, "Deployment")["spec"]["template"]["spec"]
    assert "priorityClassName" not in pod
    assert pod["topologySpreadConstraints"] == [{"topologyKey": "zone"}]
    assert "PriorityClass" not in {m["kind"] for m in found}
    assert "PriorityClass" not in {m["kind"] for m in rendered(helm, "priorityClassName=ours")}


def test_egress_is_unrestricted_by_default(helm: Path) -> None:
    assert one(rendered(helm), "NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]
    spec = one(rendered(helm, "networkPolicy.egress.enabled=true"), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [port["port"] for rule in spec["egress"] for port in rule["ports"]] == [53, 53, 8081]


def test_the_operator_accepts_the_chart_defaults_of_jobs(helm: Path) -> None:
    assert "flinkjob-defaults" not in {m["metadata"]["name"] for m in rendered(helm)}
    wish = [
        "jobDefaults.worker.resources.limits.memory=2Gi",
        "jobDefaults.configuration.execution\\.checkpointing\\.interval=1m",
    ]
    made = one(rendered(helm, *wish), "ConfigMap")
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == (CONFIG_MAP_NAME, "penstock-system")
    found = preset({"it": made["data"][KEY]})
    assert found.spec == {
        "worker": {"resources": {"limits": {"memory": "2Gi"}}},
        "configuration": {"execution.checkpointing.interval": "1m"},
    }
    assert "image" in template(helm, "jobDefaults.image=x", check=False).stderr


def test_job_pod_monitors_require_their_kind(helm: Path) -> None:
    """The chart grants the right to create them, and sets the option, only if the API server knows the kind."""

    def has(found: list[dict[str, Any]]) -> tuple[bool, bool]:
        env = one(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
        rules = rules_of_the_operator(found)
        reported = {e["name"]: e.get("value") for e in env}.get("PENSTOCK_JOB_POD_MONITORS")
        if reported:
            monitors = from_environment({"PENSTOCK_JOB_POD_MONITORS": reported}).monitors
            assert monitors is not None
            assert (monitors.interval, dict(monitors.labels)) == ("30s", {"release": "prometheus"})
        return reported is not None, any("podmonitors" in rule["resources"] for rule in rules)

    wish = ["metrics.jobPodMonitors.enabled=true", "metrics.jobPodMonitors.labels.release=prometheus"]
    assert has(rendered(helm, *wish)) == (False, False)
    with_kind = template(helm, *wish, options=["--api-versions", "monitoring.coreos.com/v1"]).stdout
    assert has(parsed(with_kind)) == (True, True)


def test_crds_are_installed_with_the_chart_and_remain_without_it(helm: Path) -> None:
    found = [m for m in rendered(helm) if m["kind"] == "CustomResourceDefinition"]
    kinds = {"flinkjobs", "flinksnapshots", "flinkclusters"}
    assert {m["metadata"]["name"] for m in found} == {f"{kind}.penstock.dev" for kind in kinds}
    for manifest in found:
        assert manifest["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        original = yaml.safe_load((ROOT / "crds" / f"{manifest['metadata']['name']}.yaml").read_text())
        assert manifest["spec"] == original["spec"]


def test_artifacthub_annotations_are_valid() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    notes = chart["annotations"]
    for key in ("images", "crds", "crdsExamples", "changes"):
        assert isinstance(yaml.safe_load(notes[f"artifacthub.io/{key}"]), list)
    assert notes["artifacthub.io/license"] == "Apache-2.0"
    kinds = {c["kind"] for c in yaml.safe_load(notes["artifacthub.io/crds"])}
    assert kinds == {e["kind"] for e in yaml.safe_load(notes["artifacthub.io/crdsExamples"])}


def test_helm_lint_passes(helm: Path) -> None:
    done = subprocess.run([helm, "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_rest_tls_is_a_default_of_jobs_and_cert_manager_creates_the_secret(helm: Path) -> None:
    values = [
        "restTls.enabled=true",
        "restTls.certManager.enabled=true",
        "restTls.certManager.issuerRef.name=internal-ca",
        "restTls.certManager.issuerRef.kind=ClusterIssuer",
        "watchNamespaces={team-a,team-b}",
        "jobDefaults.configuration.execution\\.checkpointing\\.interval=1m",
    ]
    found = parsed(template(helm, *values).stdout)
    (defaults,) = [m for m in found if m["metadata"]["name"] == CONFIG_MAP_NAME]
    configuration = yaml.safe_load(defaults["data"][KEY])["configuration"]
    assert configuration == {
        "rest.ssl.enabled": "true",
        "rest.ssl.secret-name": "flinkjob-rest-tls",
        "execution.checkpointing.interval": "1m",
    }
    certificates = {m["metadata"]["namespace"]: m["spec"] for m in found if m["kind"] == "Certificate"}
    assert set(certificates) == {"team-a", "team-b"}
    spec = certificates["team-a"]
    assert spec["secretName"] == "flinkjob-rest-tls"
    assert spec["dnsNames"] == ["*.team-a.svc", "*.team-a.svc.cluster.local"]
    assert spec["issuerRef"] == {"name": "internal-ca", "kind": "ClusterIssuer", "group": "cert-manager.io"}


CERTIFICATE_FIELDS: dict[str, Any] = {
    "secretName": str,
    "duration": str,
    "renewBefore": str,
    "commonName": str,
    "dnsNames": [str],
    "usages": ["server auth", "client auth", "digital signature", "key encipherment"],
    "privateKey": {
        "algorithm": ("RSA", "ECDSA", "Ed25519"),
        "size": (256, 384, 521),
        "rotationPolicy": ("Never", "Always"),
    },
    "issuerRef": {"name": str, "kind": str, "group": str},
}
"""The fields of `spec` of a Certificate (cert-manager.io/v1) that the chart may use.

A value is a type, a set of values, a list, or an object. The sizes are those of ECDSA keys. cert-manager requires
`secretName` and `issuerRef.name`.
"""
SHORTEST_DURATION_S = 3600
SHORTEST_RENEWAL_S = 300
LONGEST_COMMON_NAME = 64


def misfits(value: Any, shape: Any, where: str = "spec") -> list[str]:
    """Return the parts of a value that do not have the shape.

    The API server drops unknown fields, so they count as well.
    """
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [where]
        unknown = [f"{where}.{key}" for key in value.keys() - shape.keys()]
        return unknown + [
            m for key in value.keys() & shape.keys() for m in misfits(value[key], shape[key], f"{where}.{key}")
        ]
    if isinstance(shape, list):
        of = shape[0] if shape[0] is str else tuple(shape)
        return [m for item in value for m in misfits(item, of, where)] if isinstance(value, list) else [where]
    fits = value in shape if isinstance(shape, tuple) else isinstance(value, shape)
    return [] if fits else [f"{where}: {value!r}"]


def seconds(duration: str) -> int:
    """Return the length of a duration as Go writes it."""
    units = {"h": 3600, "m": 60, "s": 1}
    parts = re.findall(r"(\d+)([hms])", duration)
    assert "".join(map("".join, parts)) == duration
    return sum(int(number) * units[unit] for number, unit in parts)


@pytest.mark.parametrize("more", [[], ["restTls.certManager.duration=1h30m", "restTls.certManager.renewBefore=5m"]])
def test_certificates_have_only_fields_and_values_that_cert_manager_knows(helm: Path, more: list[str]) -> None:
    values = ["restTls.enabled=true", "restTls.certManager.enabled=true", "restTls.certManager.issuerRef.name=ca"]
    found = [m for m in rendered(helm, *values, "watchNamespaces={team-a,team-b}", *more) if m["kind"] == "Certificate"]
    assert len(found) == 2
    for manifest in found:
        spec = manifest["spec"]
        assert manifest["apiVersion"] == "cert-manager.io/v1"
        assert not misfits(spec, CERTIFICATE_FIELDS)
        assert spec["secretName"]
        assert spec["issuerRef"]["name"] == "ca"
        assert spec["issuerRef"]["kind"] in ("Issuer", "ClusterIssuer")
        assert seconds(spec["duration"]) >= SHORTEST_DURATION_S
        assert SHORTEST_RENEWAL_S <= seconds(spec["renewBefore"]) < seconds(spec["duration"])
        assert len(spec["commonName"]) <= LONGEST_COMMON_NAME


def test_unknown_fields_of_certificates_are_found() -> None:
    assert misfits({"dnsName": ["a"]}, CERTIFICATE_FIELDS) == ["spec.dnsName"]
    assert misfits({"privateKey": {"algorithm": "EC"}}, CERTIFICATE_FIELDS) == ["spec.privateKey.algorithm: 'EC'"]
    assert misfits({"usages": ["server-auth"], "dnsNames": [7]}, CERTIFICATE_FIELDS)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["restTls.certManager.issuerRef.name=ca"], "needs the namespaces"),
        (["watchNamespaces={a}"], "issuerRef"),
    ],
)
def test_a_certificate_that_cannot_be_requested_is_refused(helm: Path, values: list[str], words: str) -> None:
    on = ["restTls.enabled=true", "restTls.certManager.enabled=true"]
    assert words in template(helm, *on, *values, check=False).stderr
