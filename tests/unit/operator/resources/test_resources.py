"""The Kubernetes objects of a job: golden files, and the guarantees of restricted pods."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock_operator.api.pod_template import check_pod_template
from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.decide.decision import Event
from penstock_operator.reconcile.observe.difference import difference
from penstock_operator.reconcile.observe.manifests import drift
from penstock_operator.reconcile.report.events import kube_event
from penstock_operator.resources.children import Monitors, OperatorIdentity, children, secret, services
from penstock_operator.resources.configuration import config_map, configuration, parallelism_map
from penstock_operator.resources.deployments import (
    check_pod,
    master_deployment,
    restore_option,
    standby_deployment,
    worker_deployment,
)
from penstock_operator.resources.incarnation import Incarnation
from penstock_operator.resources.names import Owner
from penstock_operator.resources.pods import merge
from penstock_operator.resources.probes import worker_probe_command
from penstock_operator.resources.records import controller_revision, flink_snapshot
from tests.unit.operator.contexts import NOW, SAVEPOINT, make_spec

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec

GOLDEN = Path(__file__).parent / "golden"
OWNER = Owner("default", "weather", "0d8cbd3f-uid")
LOST = timedelta(seconds=30)

FULL: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "job": {"args": ["--output", "s3://bucket/out"], "allowNonRestoredState": ["dedup"], "parallelism": 3},
    "storage": {"secretName": "s3-credentials"},
    "podTemplate": {
        "metadata": {"labels": {"team": "weather"}, "annotations": {"note": "x"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "containers": [
                {"name": "penstock", "env": [{"name": "TZ", "value": "UTC"}]},
                {"name": "logs", "image": "logger:1"},
            ],
            "volumes": [{"name": "extra", "configMap": {"name": "extra"}}],
        },
    },
    "master": {"replicas": 2, "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}},
    "worker": {"slots": 2, "podTemplate": {"spec": {"tolerations": [{"key": "spot", "operator": "Exists"}]}}},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/weather"}},
    "ingress": {"host": "weather.example.com", "className": "nginx", "tlsSecretName": "tls"},
    "networkPolicy": {"restFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]},
}


def incarnation(spec: FlinkJobSpec, restore: Restore | None = None) -> Incarnation:
    restore = restore or Restore(kind="Savepoint", path=SAVEPOINT)
    allowed = spec.job.allow_non_restored_state
    return Incarnation("weather-0123456789", spec, "c" * 32, restore, spec.job.parallelism, allowed)


def everything(spec: FlinkJobSpec) -> list[dict[str, Any]]:
    one = incarnation(spec)
    return [
        *children(OWNER, spec, OperatorIdentity(), one),
        config_map(OWNER, one),
        parallelism_map(OWNER, one.parallelism),
        secret(OWNER, "rest-token-value", "spark-secret-value"),
        master_deployment(OWNER, one, LOST),
        worker_deployment(OWNER, one, 2, LOST),
        check_pod(OWNER, spec, "weather-0123456789", "op12345678", SAVEPOINT, LOST),
        controller_revision(OWNER, "weather-0123456789", spec, 3),
        flink_snapshot(OWNER, "weather-upgrade-1", trigger="upgrade", kind="savepoint", path=SAVEPOINT),
        kube_event("FlinkJob", OWNER, Event("Suspended", "set job.state to running", key="k"), NOW, "operator-0"),
    ]


@pytest.mark.parametrize(("name", "changes"), [("plain", {}), ("full", FULL)])
def test_objects_match_the_golden_files(name: str, changes: dict[str, Any]) -> None:
    """Run UPDATE_GOLDEN=1 pytest tests/unit/operator/resources/test_resources.py after an intended change, and review the difference."""
    text = yaml.safe_dump_all(everything(make_spec(**changes)), sort_keys=False, width=110)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def pods(spec: FlinkJobSpec) -> list[dict[str, Any]]:
    found = []
    for manifest in everything(spec):
        if manifest["kind"] == "Deployment":
            found.append(manifest["spec"]["template"])
        if manifest["kind"] == "Pod":
            found.append(manifest)
    return found


@pytest.mark.parametrize("changes", [{}, FULL], ids=["plain", "full"])
def test_pods_are_restricted_for_any_template(changes: dict[str, Any]) -> None:
    for pod in pods(make_spec(**changes)):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any(spec.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            if container["name"] == "penstock":
                assert security["readOnlyRootFilesystem"] is True


def test_no_pod_gets_a_token_for_the_api() -> None:
    assert [p["spec"]["automountServiceAccountToken"] for p in pods(make_spec())] == [False, False, False]


def test_secrets_are_passed_to_pods_only_as_files() -> None:
    for pod in pods(make_spec()):
        container = pod["spec"]["containers"][0]
        assert "envFrom" not in container
        assert not any("secretKeyRef" in str(env) for env in container["env"])
        assert "secrets/spark-secret" in str(pod["spec"]["volumes"])


@pytest.mark.parametrize(
    ("restore", "option"),
    [
        (Restore(kind="Fresh"), ["--fresh"]),
        (Restore(kind="Savepoint", path="s3://b/s"), ["--restore", "s3://b/s"]),
        (Restore(kind="Checkpoint", path="s3://b/c"), ["--restore", "s3://b/c"]),
        (Restore(kind="Latest", path="s3://b/c"), ["--restore-latest"]),
    ],
)
def test_the_master_gets_exactly_one_way_to_start(restore: Restore, option: list[str]) -> None:
    assert restore_option(restore) == option
    template = master_deployment(OWNER, incarnation(make_spec(), restore), LOST)["spec"]["template"]
    args = template["spec"]["containers"][0]["args"]
    assert sum(a in ("--fresh", "--restore", "--restore-latest") for a in args) == 1
    assert args[args.index("--job-id") + 1] == "c" * 32


def test_settings_of_the_operator_override_the_users_keys() -> None:
    spec = make_spec().model_copy(update={"configuration": {"rest.port": 99, "state.backend.type": "rocksdb"}})
    keys = configuration(spec)
    assert keys["rest.port"] == 8081
    assert keys["state.backend.type"] == "rocksdb"
    assert keys["execution.checkpointing.interval"] == "30s"


def test_a_rescale_changes_neither_pod_nor_configuration_except_for_one_number() -> None:
    before, after = incarnation(make_spec()), incarnation(make_spec(job={"parallelism": 9}))
    assert master_deployment(OWNER, before, LOST) == master_deployment(OWNER, after, LOST)
    assert config_map(OWNER, before) == config_map(OWNER, after)
    assert parallelism_map(OWNER, before.parallelism) != parallelism_map(OWNER, after.parallelism)


def test_each_incarnation_has_its_own_immutable_configuration() -> None:
    one = incarnation(make_spec())
    assert config_map(OWNER, one)["immutable"] is True
    others = [replace(one, job_id="d" * 32), replace(one, revision="weather-9876543210")]
    names = {config_map(OWNER, other)["metadata"]["name"] for other in [one, *others]}
    assert len(names) == 3
    for other in [one, *others]:
        pods = [
            d["spec"]["template"]["spec"]
            for d in (master_deployment(OWNER, other, LOST), worker_deployment(OWNER, other, 2, LOST))
        ]
        mounted = {p["volumes"][0]["projected"]["sources"][0]["configMap"]["name"] for p in pods}
        assert mounted == {config_map(OWNER, other)["metadata"]["name"]}


def test_templates_are_merged_by_name() -> None:
    base: dict[str, Any] = {
        "containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}],
        "tolerations": [{"key": "t"}],
    }
    over = {
        "containers": [{"name": "b"}, {"name": "a", "env": [{"name": "Y"}]}],
        "tolerations": [{"key": "u"}, {"key": "t"}],
    }
    merged = merge(base, over)
    assert [c["name"] for c in merged["containers"]] == ["a", "b"]
    assert [e["name"] for e in merged["containers"][0]["env"]] == ["X", "Y"]
    assert [t["key"] for t in merged["tolerations"]] == ["t", "u"]
    assert base["containers"][0]["env"] == [{"name": "X", "value": "1"}], "the base is not changed"


odd = st.sampled_from([None, 0, True, "x", [], ["x"], [None], [{"name": []}], [{"name": None}], {}, {"name": "x"}])


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy that mostly yields valid values, and sometimes others, which must be refused or accepted."""
    return st.integers(0, 24).flatmap(lambda n: odd if n == 24 else good)


def fields(**good: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={key: mostly(value) for key, value in good.items()})


texts = st.dictionaries(st.sampled_from(["a", "app"]), mostly(st.just("x")), max_size=1)
named = st.lists(mostly(fields(name=st.sampled_from(["a", "config", "work", "HOME"]), secret=st.just({}))), max_size=2)
main = fields(env=named, envFrom=named, volumeMounts=named).map(lambda c: {**c, "name": "penstock"})
beside = fields(env=named, ports=named, securityContext=st.just({"runAsUser": 5})).map(
    lambda c: {**c, "name": "s", "image": "x"}
)
templates = fields(
    metadata=fields(labels=texts, annotations=texts),
    spec=fields(
        containers=st.lists(mostly(main | beside), max_size=2),
        initContainers=st.lists(mostly(beside), max_size=1),
        securityContext=st.just({"fsGroup": 5}),
        volumes=st.lists(mostly(fields(name=st.sampled_from(["a", "config"]), secret=st.just({}))), max_size=2),
        tolerations=named,
        imagePullSecrets=named,
        schedulingGates=named,
    ),
)


@given(templates, templates)
def test_pods_can_be_built_from_every_accepted_template(job: dict[str, Any], master: dict[str, Any]) -> None:
    if not [*check_pod_template(job, "t"), *check_pod_template(master, "t")]:
        pods(make_spec(podTemplate=job, master={"podTemplate": master}, imagePullSecrets=[{"name": "a"}]))


def test_null_removes_no_field_that_pods_need() -> None:
    main = {"name": "penstock", "env": None, "volumeMounts": None}
    first = {"name": "wait", "image": "x", "securityContext": None}
    template = {
        "metadata": {"labels": None, "annotations": None},
        "spec": {"containers": [main], "initContainers": [first], "volumes": None, "securityContext": None},
    }
    for plain, pod in zip(pods(make_spec()), pods(make_spec(podTemplate=template)), strict=True):
        assert pod["spec"].pop("initContainers")[0]["securityContext"]["runAsNonRoot"] is True
        assert pod == plain


def main_container(pod: dict[str, Any]) -> dict[str, Any]:
    return next(c for c in pod["spec"]["containers"] if c["name"] == "penstock")


@pytest.mark.parametrize(
    ("given", "requests"),
    [
        ({}, {"cpu": "150m", "memory": "456Mi"}),
        ({"requests": {"cpu": "2"}}, {"cpu": "2", "memory": "456Mi"}),
        ({"limits": {"memory": "2Gi"}}, {"cpu": "150m"}),
        ({"requests": {"memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}, {"memory": "1Gi"}),
        ({"limits": {"cpu": "1", "memory": "2Gi"}}, None),
        ({"limits": {"memory": "0"}}, {"cpu": "150m"}),
    ],
)
def test_no_pod_is_best_effort(given: dict[str, Any], requests: dict[str, Any] | None) -> None:
    """Kubernetes sets a missing request to the limit."""
    for pod in pods(make_spec()):
        assert main_container(pod)["resources"]["requests"].keys() == {"cpu", "memory"}
    worker = pods(make_spec(worker={"resources": given}))[1]
    assert main_container(worker)["resources"].get("requests") == requests
    assert main_container(worker)["resources"].get("limits") == given.get("limits")


def test_slots_follow_the_requested_resources() -> None:
    worker = pods(make_spec(worker={"slots": 4}))[1]
    assert main_container(worker)["resources"] == {"requests": {"cpu": "450m", "memory": "912Mi"}}


def test_the_engine_knows_the_limits_of_its_containers() -> None:
    keys = configuration(
        make_spec(worker={"resources": {"limits": {"memory": "1.5Gi"}}}, master={"resources": {"limits": {"cpu": 1}}})
    )
    assert keys["taskmanager.memory.process.size"] == f"{3 * 2**29}b"
    assert "jobmanager.memory.process.size" not in keys
    own = make_spec(
        worker={"resources": {"limits": {"memory": "1Gi"}}},
        configuration={"taskmanager.memory.process.size": "900mb"},
    )
    assert configuration(own)["taskmanager.memory.process.size"] == "900mb", "room for what is beside the engine"


@pytest.mark.parametrize("limit", ["0", "0Mi", 0])
def test_a_limit_of_zero_means_no_limit(limit: str | int) -> None:
    resources = {"resources": {"limits": {"memory": limit}}}
    keys = configuration(make_spec(worker=resources, master=resources))
    assert not [key for key in keys if key.endswith("memory.process.size")]


def test_a_disruption_budget_does_not_block_a_node_for_pods_that_do_not_run() -> None:
    (budget,) = [m for m in everything(make_spec()) if m["kind"] == "PodDisruptionBudget"]
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_two_masters_elect_a_leader_prefer_two_nodes_and_are_evicted_one_by_one() -> None:
    spec = make_spec(master={"replicas": 2})
    objects = everything(spec)
    master = next(m for m in objects if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-master"))
    assert master["spec"]["replicas"] == 2
    assert master["spec"]["strategy"] == {"type": "Recreate"}
    rules = master["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    (rule,) = rules["preferredDuringSchedulingIgnoredDuringExecution"]
    assert rule["podAffinityTerm"]["labelSelector"]["matchLabels"] == master["spec"]["selector"]["matchLabels"]
    budgets = {
        m["metadata"]["name"]: m["spec"]["maxUnavailable"] for m in objects if m["kind"] == "PodDisruptionBudget"
    }
    assert budgets == {"weather-master": 1, "weather-worker": 1}
    assert configuration(spec)["high-availability.type"] == "file"


def test_an_affinity_of_the_user_is_merged_over_the_one_of_two_masters() -> None:
    own = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": None}, "nodeAffinity": {"x": 1}}
    spec = make_spec(master={"replicas": 2, "podTemplate": {"spec": {"affinity": own}}})
    assert pods(spec)[0]["spec"]["affinity"] == {"podAntiAffinity": {}, "nodeAffinity": {"x": 1}}


def test_one_master_takes_part_in_no_election() -> None:
    assert not [key for key in configuration(make_spec()) if key.startswith("high-availability")]
    assert "affinity" not in pods(make_spec())[0]["spec"]


def test_pods_run_under_an_existing_account() -> None:
    spec = make_spec(serviceAccount={"name": "weather-cloud"})
    assert [pod["spec"]["serviceAccountName"] for pod in pods(spec)] == ["weather-cloud"] * 3
    assert not [pod for pod in pods(spec) if pod["spec"]["automountServiceAccountToken"]]
    assert not [m for m in everything(spec) if m["kind"] == "ServiceAccount"]


def test_probes_can_be_relaxed_or_removed() -> None:
    patient = {"name": "penstock", "startupProbe": {"failureThreshold": 900}, "livenessProbe": None}
    template = {"spec": {"containers": [patient]}}
    assert not [*check_pod_template(template, "t")]
    master, worker = (main_container(pod) for pod in pods(make_spec(podTemplate=template))[:2])
    for probes in (master, worker):
        assert probes["startupProbe"]["failureThreshold"] == 900
        assert "livenessProbe" not in probes
    assert master["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "rest"}
    assert master["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert worker["startupProbe"]["exec"]["command"] == worker_probe_command(8082, "/healthz")
    assert worker["readinessProbe"]["exec"]["command"] == worker_probe_command(8082, "/readyz")


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (
            {"exec": {"command": ["true"]}},
            "livenessProbe.exec: not allowed: a job can change only the timing",
        ),
        ({"periodSeconds": "10"}, "livenessProbe.periodSeconds: it must be a whole number, not '10'"),
    ],
)
def test_the_request_of_a_probe_cannot_be_changed(probe: dict[str, Any], words: str) -> None:
    template = {"spec": {"containers": [{"name": "penstock", "livenessProbe": probe}]}}
    (problem,) = check_pod_template(template, "t")
    assert words in str(problem)


def test_an_ingress_below_a_path_is_created() -> None:
    wish = {"host": "jobs.example.com", "path": "/weather(/|$)(.*)", "pathType": "ImplementationSpecific"}
    (found,) = [m for m in everything(make_spec(ingress=wish)) if m["kind"] == "Ingress"]
    (path,) = found["spec"]["rules"][0]["http"]["paths"]
    assert (path["path"], path["pathType"]) == ("/weather(/|$)(.*)", "ImplementationSpecific")


def test_a_pod_monitor_has_the_token_of_its_job() -> None:
    monitors = Monitors("15s", {"release": "prometheus", "penstock.dev/job": "another"})
    found = children(OWNER, make_spec(), OperatorIdentity(monitors=monitors), incarnation(make_spec()))
    monitor = found[-1]
    assert (monitor["kind"], monitor["metadata"]["labels"]["release"]) == ("PodMonitor", "prometheus")
    assert monitor["metadata"]["labels"]["penstock.dev/job"] == "weather"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    made = secret(OWNER, "a", "b")
    credentials = endpoint["authorization"]["credentials"]
    assert (credentials["name"], credentials["key"] in made["data"]) == (made["metadata"]["name"], True)
    master = pods(make_spec())[0]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= master["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in main_container(master)["ports"]}
    kinds = {m["kind"] for m in children(OWNER, make_spec(), OperatorIdentity(), incarnation(make_spec()))}
    assert "PodMonitor" not in kinds


def test_standby_pods_equal_the_later_pods_and_replace_none_early() -> None:
    spec = make_spec()
    warm = replace(incarnation(spec), warm=True, service_suffix="-2")
    for build in (lambda i: master_deployment(OWNER, i, LOST), lambda i: worker_deployment(OWNER, i, 2, LOST)):
        ordinary = build(warm)
        beside = standby_deployment(ordinary, "a" * 32)
        assert beside["spec"]["template"] == ordinary["spec"]["template"]
        assert beside["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "100%", "maxUnavailable": 0}
        assert beside["spec"]["progressDeadlineSeconds"] > beside["spec"]["minReadySeconds"] >= 3600
        assert beside["metadata"]["annotations"]["penstock.dev/standby-beside"] == "a" * 32
        assert ordinary["spec"]["strategy"] == {"type": "Recreate"}
        assert "penstock.dev/standby-beside" not in ordinary["metadata"]["annotations"]


def test_two_concurrent_incarnations_do_not_find_each_others_master() -> None:
    spec = make_spec()
    before = replace(incarnation(spec), service_suffix="-1")
    after = replace(before, job_id="d" * 32, warm=True, service_suffix="-2")
    for one in (before, after):
        master, worker = master_deployment(OWNER, one, LOST), worker_deployment(OWNER, one, 2, LOST)
        made = children(OWNER, spec, OperatorIdentity(), one)
        service_suffix = next(m for m in made if m["metadata"]["name"] == OWNER.master_service(one.service_suffix))
        args = main_container(worker["spec"]["template"])["args"]
        assert args[args.index("--master") + 1] == f"{service_suffix['metadata']['name']}.default.svc:7077"
        for other in (before, after):
            labels = master_deployment(OWNER, other, LOST)["spec"]["template"]["metadata"]["labels"]
            assert (service_suffix["spec"]["selector"].items() <= labels.items()) == (other is one)
        assert ("--when-released" in main_container(master["spec"]["template"])["args"]) == one.warm


@pytest.mark.parametrize(("service_suffix", "address"), [("-1", None), ("-2", None), ("", "None"), ("-b", "None")])
def test_the_masters_name_resolves_before_the_master_exists(service_suffix: str, address: str | None) -> None:
    """The Service has a cluster IP. A Service of a former operator has none, and cannot get one later."""
    made = services(OWNER, replace(incarnation(make_spec()), service_suffix=service_suffix))[0]
    assert made["spec"].get("clusterIP") == address
    assert made["spec"]["publishNotReadyAddresses"]


def test_null_removes_a_default() -> None:
    template = {"spec": {"tolerations": None, "nodeSelector": {"disk": None}, "enableServiceLinks": None}}
    everywhere = {"spec": {"nodeSelector": {"disk": "ssd", "zone": "a"}}}
    worker = pods(make_spec(podTemplate=everywhere, worker={"podTemplate": template}))[1]
    assert "tolerations" not in worker["spec"]
    assert "enableServiceLinks" not in worker["spec"]
    assert worker["spec"]["nodeSelector"] == {"zone": "a"}


def test_fields_that_the_api_server_adds_are_no_difference() -> None:
    wanted = {"ports": [{"port": 1}], "limits": {"cpu": "1000m"}, "empty": {}, "none": None}
    live = {"ports": [{"port": 1, "protocol": "TCP"}], "limits": {"cpu": "1"}, "more": 1}
    assert difference(wanted, live) is None
    assert difference({"ports": [{"port": 2}]}, live) == "ports[0].port"
    assert difference({"ports": []}, live) == "ports"


def test_drift_is_checked_only_by_the_version_that_created_the_object() -> None:
    wanted = master_deployment(OWNER, incarnation(make_spec()), LOST)
    live = yaml.safe_load(yaml.safe_dump(wanted))
    assert not drift(wanted, live)
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"
    assert drift(wanted, live) == "spec.template.spec.containers[penstock].image"
    live["metadata"]["annotations"]["penstock.dev/applied"] = "made-by-an-older-operator"
    assert not drift(wanted, live)


def test_repeated_reports_are_one_event() -> None:
    event = Event("Suspended", "text", key="k")
    names = {
        kube_event("FlinkJob", OWNER, event, NOW + timedelta(seconds=i), "o")["metadata"]["name"] for i in range(3)
    }
    assert len(names) == 1


def test_a_master_with_tls_has_certificate_probes_and_monitor_of_its_secret() -> None:
    on = {"rest.ssl.enabled": "true", "rest.ssl.secret-name": "weather-tls"}
    spec = make_spec(configuration=on, ingress={"host": "jobs.example.com"})
    made = children(OWNER, spec, OperatorIdentity(monitors=Monitors()), incarnation(spec))
    master, worker = pods(spec)[:2]
    container = main_container(master)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    assert "weather-tls" in str(master["spec"]["volumes"])
    assert "weather-tls" not in str(worker["spec"]["volumes"])
    (service,) = [m for m in made if m["kind"] == "Service" and m["metadata"]["name"].endswith("-rest")]
    assert service["spec"]["ports"][0]["appProtocol"] == "https"
    (found,) = [m for m in made if m["kind"] == "Ingress"]
    assert found["metadata"]["annotations"]["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"
    (endpoint,) = made[-1]["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == "weather-tls"
