"""The API kinds: generated files are current, values survive a round trip, and errors explain bad manifests."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_operator.api.flinkjob import FlinkJobSpec, workers_for
from penstock_operator.api.pod_template import check_pod_template
from penstock_operator.api.schema.crds import all_crds
from penstock_operator.api.schema.generate import SIZE_LIMIT, main, outputs
from penstock_operator.api.status.flinkjob_status import FlinkJobStatus, parse_status, unreadable
from penstock_operator.api.types import DURATION_PATTERN, format_duration, format_time, parse_duration
from penstock_operator.api.validation import FIXED_KEYS, OWNED_KEYS, parse_spec, quantity
from penstock_operator.errors import SpecError
from tests.unit.operator.world import flinkjob

ROOT = Path(__file__).parents[4]


def walk(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, field in schema.get("properties", {}).items():
        found += walk(field, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        found += walk(schema["items"], f"{path}[]")
    return found


def schemas() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{crd['spec']['names']['kind']}{path}", schema)
        for crd in all_crds().values()
        for path, schema in walk(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    ]


def test_generated_files_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--root", str(ROOT)]) == 0, capsys.readouterr().err


def test_the_error_names_an_outdated_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tmp_path)]) == 0
    (tmp_path / "crds/flinkjobs.penstock.dev.yaml").write_text("old")
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "crds/flinkjobs.penstock.dev.yaml is not current" in capsys.readouterr().err


def test_crds_are_small() -> None:
    for path, text in outputs().items():
        if path.startswith("crds/"):
            assert len(text.encode()) < SIZE_LIMIT, path


@pytest.mark.parametrize(("path", "schema"), schemas(), ids=lambda v: v if isinstance(v, str) else "")
def test_schemas_are_structural_and_documented(path: str, schema: dict[str, Any]) -> None:
    assert "type" in schema or schema.get("x-kubernetes-int-or-string"), f"{path} has no type"
    assert not {"$ref", "title", "anyOf", "allOf", "$defs"} & schema.keys() - {"anyOf"}, path
    if "." in path and not path.endswith((".apiVersion", ".kind", ".metadata", "[]")):
        assert schema.get("description"), f"{path} is not described"
    if ".status" in path:
        assert "default" not in schema, f"{path}: the API server would make facts up"


def test_kubectl_shows_columns_and_short_names() -> None:
    crd = all_crds()["flinkjobs.penstock.dev.yaml"]["spec"]
    assert crd["names"]["shortNames"] == ["fj"]
    assert crd["names"]["categories"] == ["streaming"]
    columns = crd["versions"][0]["additionalPrinterColumns"]
    narrow = [c["name"] for c in columns if not c.get("priority")]
    wide = [c["name"] for c in columns if c.get("priority")]
    assert narrow == ["State", "Ready", "Parallelism", "Checkpoint", "Restarts", "Age"]
    assert wide == ["Wanted", "Restored-From", "Image", "Message"]
    assert crd["versions"][0]["subresources"]["scale"]["specReplicasPath"] == ".spec.job.parallelism"


@given(st.integers(min_value=0, max_value=10**10).map(lambda ms: timedelta(milliseconds=ms)))
def test_durations_survive_a_round_trip(value: timedelta) -> None:
    text = format_duration(value)
    assert parse_duration(text) == value
    assert re.fullmatch(DURATION_PATTERN, text)


@pytest.mark.parametrize("text", ["", "5", "10 s", "s", "-1s", "1.5h", "1y"])
def test_wrong_durations_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="like 30s"):
        parse_duration(text)


def test_times_are_utc_in_whole_seconds() -> None:
    assert format_time(datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)) == "2026-01-02T03:04:05Z"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
status_keys = st.sampled_from([f.alias or name for name, f in FlinkJobStatus.model_fields.items()])


@given(st.dictionaries(status_keys, json_values, max_size=6) | json_values)
def test_any_status_can_be_read(raw: Any) -> None:
    status = parse_status(raw)
    assert parse_status(status.to_manifest()) == status
    assert unreadable(raw, status) == unreadable(raw)


def test_a_status_with_one_bad_field_keeps_the_others() -> None:
    raw = {"phase": 7, "stableRevision": "weather-1", "running": {"revision": 3}, "workers": "many"}
    status = parse_status(raw)
    assert status.stable_revision == "weather-1"
    assert status.running is None
    assert status.phase == "Pending"
    assert unreadable(raw) == {"running": {"revision": 3}}


def test_values_of_a_later_version_are_read() -> None:
    operation = {
        "id": "a",
        "kind": "BlueGreen",
        "step": "Mirror",
        "startedAt": "2026-01-01T12:00:00Z",
        "stepSince": "2026-01-01T12:00:00Z",
    }
    raw = {"phase": "Mirroring", "operation": operation}
    status = parse_status(raw)
    assert (status.phase, status.operation and status.operation.kind) == ("Mirroring", "BlueGreen")
    assert unreadable(raw) == {}


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"job": {"entry": "job.py", "parallelism": 200}}, "spec.job.parallelism", "maxParallelism 128"),
        (
            {"job": {"entry": "job.py", "savepointRedeployNonce": 1}},
            "spec.job.savepointRedeployNonce",
            "initialSavepointPath",
        ),
        ({"job": {"entry": "--fresh"}}, "spec.job.entry", "looks like an option"),
        (
            {"configuration": {"execution.checkpointing.intervall": "1s"}},
            "spec.configuration",
            "execution.checkpointing.interval?",
        ),
        ({"job": {}}, "spec.job.entry", "exactly one of entry, script and sql"),
        ({"job": {"sql": "SHOW TABLES", "script": "a"}}, "spec.job.entry", "exactly one of entry, script and sql"),
        ({"job": {"sql": "SHOW TABLES", "args": ["a"]}}, "spec.job.args", "SQL statements have no arguments"),
        ({"job": {"sql": "ä" * 200_000}}, "spec.job.sql", "400000 bytes"),
        ({"configuration": {"rest.port": 1}}, "spec.configuration['rest.port']", "always 8081"),
        ({"configuration": {"security.rest.token-file": "x"}}, "spec.configuration", "set by the operator"),
        ({"configuration": {"s3.secret-key": "x"}}, "spec.configuration['s3.secret-key']", "Secret"),
        ({"configuration": {"a": {"b": 1}}}, "spec.configuration['a']", "flat keys"),
        ({"snapshots": {"periodic": {"cron": "61 * * * *"}}}, "spec.snapshots.periodic.cron", "minute"),
        ({"snapshots": {"periodic": {}}}, "spec.snapshots.periodic", "exactly one"),
        ({"snapshots": {"periodic": {"interval": "0s"}}}, "spec.snapshots.periodic.interval", "less than a second"),
        (
            {"worker": {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}},
            "spec.worker.resources.requests.memory",
            "more than the limit",
        ),
        ({"podTemplate": {"spec": {"hostNetwork": True}}}, "spec.podTemplate.spec.hostNetwork", "node's network"),
    ],
)
def test_errors_of_bad_specs_name_the_field_and_the_remedy(changes: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({**flinkjob()["spec"], **changes})
    assert field in str(caught.value)
    assert words in str(caught.value)
    assert all(p.remedy for p in caught.value.problems)


@pytest.mark.parametrize(("key", "words"), [*OWNED_KEYS.items(), *FIXED_KEYS.items()])
def test_errors_of_keys_that_the_operator_sets_name_the_replacement_or_the_reason(key: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({**flinkjob()["spec"], "configuration": {key: "x"}})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": {"labels": {"team": "a"}, "annotations": {"x": "y"}}},
        {
            "spec": {
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"operator": "Exists"}],
                "priorityClassName": "high",
            }
        },
        {"spec": {"securityContext": {"fsGroup": 1000, "runAsUser": 1000}}},
        {"spec": {"containers": [{"name": "penstock", "env": [{"name": "A", "value": "b"}], "volumeMounts": []}]}},
        {"spec": {"containers": [{"name": "sidecar", "image": "x", "ports": [{"containerPort": 1}]}]}},
        {
            "spec": {
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "s", "secret": {}}]
            }
        },
    ],
)
def test_valid_pod_templates_are_accepted(template: dict[str, Any]) -> None:
    assert list(check_pod_template(template, "t")) == []


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"spec": {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}}, "t.spec.volumes[0].hostPath"),
        ({"spec": {"volumes": [{"name": "n", "nfs": {}}]}}, "t.spec.volumes[0].nfs"),
        ({"spec": {"serviceAccountName": "admin"}}, "t.spec.serviceAccountName"),
        ({"spec": {"automountServiceAccountToken": True}}, "t.spec.automountServiceAccountToken"),
        ({"spec": {"hostPID": True}}, "t.spec.hostPID"),
        ({"spec": {"securityContext": {"runAsUser": 0}}}, "t.spec.securityContext.runAsUser: 0"),
        ({"spec": {"securityContext": {"runAsNonRoot": False}}}, "runAsNonRoot: false"),
        ({"spec": {"securityContext": {"sysctls": []}}}, "t.spec.securityContext.sysctls"),
        ({"spec": {"containers": [{"name": "penstock", "image": "x"}]}}, "t.spec.containers[0].image"),
        (
            {"spec": {"containers": [{"name": "penstock", "securityContext": {}}]}},
            "t.spec.containers[0].securityContext",
        ),
        (
            {"spec": {"containers": [{"name": "s", "image": "x", "securityContext": {"privileged": True}}]}},
            "privileged",
        ),
        (
            {
                "spec": {
                    "containers": [{"name": "s", "image": "x", "securityContext": {"capabilities": {"add": ["A"]}}}]
                }
            },
            "capabilities",
        ),
        (
            {
                "spec": {
                    "containers": [{"name": "s", "image": "x", "securityContext": {"allowPrivilegeEscalation": True}}]
                }
            },
            "allowPrivilegeEscalation",
        ),
        ({"spec": {"containers": [{"name": "s", "image": "x", "ports": [{"hostPort": 80}]}]}}, "hostPort"),
        ({"spec": {"containers": [{"name": "s"}]}}, "t.spec.containers[0].image"),
        ({"spec": {"containers": [{"image": "x"}]}}, "t.spec.containers[0]"),
        ({"spec": {"initContainers": [{"name": "i", "image": "x", "volumeDevices": []}]}}, "volumeDevices"),
        ({"spec": {"containers": [{"name": "penstock", "env": [{"name": "PENSTOCK_CONF_DIR"}]}]}}, "PENSTOCK_CONF_DIR"),
        (
            {"spec": {"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {}}]}}]}},
            "serviceAccountToken",
        ),
        ({"metadata": {"labels": {"penstock.dev/job": "other"}}}, "t.metadata.labels.penstock.dev/job"),
        ({"metadata": {"name": "x"}}, "t.metadata.name"),
        ({"status": {}}, "t.status"),
    ],
)
def test_invalid_pod_templates_are_refused(template: dict[str, Any], field: str) -> None:
    problems = list(check_pod_template(template, "t"))
    assert any(field in p.field for p in problems), problems


SIDECAR = {"name": "s", "image": "x"}


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"metadata": []}, "t.metadata: it must be an object, not a list"),
        ({"metadata": {"labels": "x"}}, "t.metadata.labels: it must be an object of strings, not a string"),
        ({"metadata": {"labels": {"a": True}}}, "t.metadata.labels.a: it must be a string, not a boolean"),
        ({"metadata": {"annotations": {"a": None}}}, "t.metadata.annotations.a: it must be a string, not null"),
        ({"spec": []}, "t.spec: it must be an object, not a list"),
        ({"spec": {"securityContext": "x"}}, "t.spec.securityContext: it must be an object, not a string"),
        ({"spec": {"containers": {"name": "x"}}}, "t.spec.containers: it must be a list of objects, not an object"),
        ({"spec": {"containers": [SIDECAR, "x"]}}, "t.spec.containers[1]: it must be an object, not a string"),
        ({"spec": {"containers": [None]}}, "t.spec.containers[0]: it must be an object, not null"),
        (
            {"spec": {"containers": ["x", {"name": "s"}]}},
            "t.spec.containers[1].image: a container other than the main one",
        ),
        ({"spec": {"containers": [{**SIDECAR, "name": 5}]}}, "t.spec.containers[0].name: it must be a string, not a n"),
        (
            {"spec": {"initContainers": [{**SIDECAR, "securityContext": [1]}]}},
            "t.spec.initContainers[0].securityContext: it must be an object, not a list",
        ),
        (
            {"spec": {"containers": [{"name": "penstock", "env": {"A": "b"}}]}},
            "t.spec.containers[0].env: it must be a list of objects, not an object",
        ),
        (
            {"spec": {"containers": [{"name": "penstock", "env": [{"name": ["A"]}]}]}},
            "t.spec.containers[0].env[0].name: it must be a string, not a list",
        ),
        (
            {"spec": {"containers": [{"name": "penstock", "volumeMounts": "x"}]}},
            "t.spec.containers[0].volumeMounts: it must be a list of objects, not a string",
        ),
        ({"spec": {"volumes": {"a": {}}}}, "t.spec.volumes: it must be a list of objects, not an object"),
        ({"spec": {"volumes": [{"name": {}}]}}, "t.spec.volumes[0].name: it must be a string, not an object"),
        (
            {"spec": {"volumes": [{"name": "p", "projected": {"sources": {"serviceAccountToken": {}}}}]}},
            "t.spec.volumes[0].projected.sources: it must be a list of objects, not an object",
        ),
        ({"spec": {"tolerations": "all"}}, "t.spec.tolerations: it must be a list of objects, not a string"),
        ({"spec": {"imagePullSecrets": ["x"]}}, "t.spec.imagePullSecrets[0]: it must be an object, not a string"),
        ({"spec": {"nodeSelector": {"ssd": True}}}, "t.spec.nodeSelector.ssd: it must be a string, not a boolean"),
    ],
)
def test_the_error_names_a_value_of_the_wrong_type_in_a_pod_template(template: dict[str, Any], message: str) -> None:
    assert any(str(p).startswith(message) for p in check_pod_template(template, "t"))


@given(json_values)
def test_any_pod_template_can_be_checked(template: Any) -> None:
    list(check_pod_template(template if isinstance(template, dict) else {"spec": template}, "t"))


@pytest.mark.parametrize(
    ("text", "value"), [("100m", 0.1), ("1", 1), (2, 2), ("1.5Gi", 1.5 * 2**30), ("3k", 3000), ("1Ki", 1024)]
)
def test_quantities_are_parsed(text: str | int, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("worker", "parallelism", "pods"), [({}, 4, 4), ({"slots": 2}, 5, 3), ({"replicas": 3}, 2, 3), ({"slots": 4}, 1, 1)]
)
def test_workers_are_computed_from_a_parallelism(worker: dict[str, Any], parallelism: int, pods: int) -> None:
    spec = FlinkJobSpec.model_validate({**flinkjob()["spec"], "worker": worker})
    assert workers_for(spec, parallelism) == pods


def test_the_reference_names_durations_and_describes_repeated_objects_once() -> None:
    lines = outputs()["docs/operator/reference.md"].splitlines()
    assert [line for line in lines if line.startswith("| `upgrade.savepointTimeout` | duration | `10m` |")]
    assert [line for line in lines if line.startswith("| `running.restoredFrom.path` |")]
    restore = [line for line in lines if line.startswith("| `nextRestore")]
    assert len(restore) == 1
    assert restore[0].endswith("It has the same fields as `running.restoredFrom`. |")
