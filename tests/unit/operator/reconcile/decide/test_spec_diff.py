"""Every field of the spec has a known effect, and revisions have stable names."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.api.status.operation import Rejected
from penstock_operator.reconcile.decide.operations.begin import next_operation
from penstock_operator.reconcile.decide.spec_diff import (
    EFFECTS,
    Effect,
    diff,
    effect_of,
    fingerprint,
    former_revision_hash,
    revision_hash,
)
from penstock_operator.reconcile.observation import Revisions
from penstock_operator.reconcile.presets.defaults import Preset, spec_with_defaults
from tests.unit.operator.contexts import NOW, deployment, make_context, make_running, make_spec, up
from tests.unit.operator.world import flinkjob


def spec(**changes: Any) -> FlinkJobSpec:
    raw = flinkjob()["spec"]
    for key, value in changes.items():
        raw[key] = {**raw.get(key, {}), **value} if isinstance(value, dict) else value
    return FlinkJobSpec.model_validate(raw)


def leaves(model: type[BaseModel], path: str = "") -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        here = f"{path}.{field.alias or name}".lstrip(".")
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and here not in EFFECTS:
            found += leaves(inner, here)
        else:
            found.append(here)
    return found


def test_every_field_has_its_own_effect_in_the_table() -> None:
    unknown = [path for path in leaves(FlinkJobSpec) if not _listed(path)]
    assert not unknown, f"decide what a change of {unknown} does, and add it to EFFECTS"


def _listed(path: str) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:n]) in EFFECTS for n in range(1, len(parts) + 1))


def test_every_entry_of_the_table_is_a_field() -> None:
    known = leaves(FlinkJobSpec)
    assert not [path for path in EFFECTS if not any(k == path or k.startswith(f"{path}.") for k in known)]


def test_an_unlisted_field_restarts_the_job() -> None:
    assert effect_of("somethingNew.inside") is Effect.RESTART


@pytest.mark.parametrize(
    ("changes", "path", "effect"),
    [
        ({"image": "job:2"}, "image", Effect.RESTART),
        ({"job": {"args": ["--x"]}}, "job.args", Effect.RESTART),
        ({"job": {"parallelism": 3}}, "job.parallelism", Effect.RESCALE),
        ({"worker": {"replicas": 5}}, "worker.replicas", Effect.RESCALE),
        ({"worker": {"slots": 5}}, "worker.slots", Effect.RESTART),
        ({"job": {"state": "suspended"}}, "job.state", Effect.STATE),
        ({"job": {"upgradeMode": "last-state"}}, "job.upgradeMode", Effect.NOTHING),
        ({"configuration": {"a": "b"}}, "configuration.a", Effect.RESTART),
        ({"ingress": {"host": "h"}}, "ingress", Effect.CHILDREN),
        ({"rollback": {"enabled": False}}, "rollback.enabled", Effect.NOTHING),
        (
            {"job": {"savepointRedeployNonce": 2, "initialSavepointPath": "s3://b/s"}},
            "job.savepointRedeployNonce",
            Effect.REDEPLOY,
        ),
    ],
)
def test_a_change_has_the_effect_of_its_field(changes: dict[str, Any], path: str, effect: Effect) -> None:
    found = diff(spec(), spec(**changes))
    assert (found[0].path, found[0].effect) == (path, effect)
    same = effect not in (Effect.RESTART,)
    assert (revision_hash(spec()) == revision_hash(spec(**changes))) is same


def test_changes_are_described_briefly() -> None:
    [change] = diff(spec(), spec(image="job:2"))
    assert str(change) == 'image: "job:1" → "job:2"'
    [long] = diff(spec(), spec(image="x" * 500))
    assert len(str(long)) < 150


def test_explicit_defaults_are_the_same_revision() -> None:
    assert revision_hash(spec()) == revision_hash(spec(worker={"slots": 1}, imagePullPolicy="IfNotPresent"))


def test_the_hash_has_not_changed() -> None:
    """If this fails, a new version of the operator would restart every job in every cluster."""
    assert revision_hash(spec()) == "a22a68effd"


@pytest.mark.parametrize(
    ("autoscaling", "digest"),
    [
        ({}, "a22a68effd"),
        ({"enabled": True, "max": 8}, "fd493a0f68"),
        ({"enabled": True, "max": 8, "memory": {"mode": "apply", "max": "4Gi"}}, "fd493a0f68"),
    ],
)
def test_the_hash_of_earlier_versions_has_the_section_autoscaling(autoscaling: dict[str, Any], digest: str) -> None:
    """If this fails, the first operator without this section in its hash would restart every autoscaled job."""
    assert former_revision_hash(spec(autoscaling=autoscaling)) == digest


@pytest.mark.parametrize("now", [{"enabled": True, "max": 8}, {"enabled": True, "max": 6}, {"enabled": False}])
def test_an_autoscaled_job_of_an_earlier_version_is_not_restarted(now: dict[str, Any]) -> None:
    before = make_spec(autoscaling={"enabled": True, "max": 8})
    name = f"weather-{former_revision_hash(before)}"
    seen = up(
        master=deployment("master", revision=name),
        worker=deployment("worker", revision=name),
        revisions=Revisions({name: before.to_manifest()}),
    )
    running = make_running(before, revision=name)
    ctx = make_context(make_spec(autoscaling=now), seen=seen, running=running, stable_revision=name)
    assert ctx.desired_revision == name
    assert next_operation(ctx) is None
    edited = make_context(make_spec(image="job:2"), seen=seen, running=running, stable_revision=name)
    assert edited.desired_revision == f"weather-{revision_hash(make_spec(image='job:2'))}"


def test_a_rejected_spec_of_an_earlier_version_is_not_tried_again() -> None:
    bad = make_spec(image="job:2", autoscaling={"enabled": True, "max": 8})
    known = Rejected(fingerprint="433a92749e", revision="weather-fd493a0f68", generation=1, reason="x", time=NOW)
    auto = spec(autoscaling={"enabled": True, "max": 8})
    assert make_context(auto, rejected=known).is_rejected
    assert not make_context(bad, rejected=known).is_rejected


def test_the_defaults_of_an_autoscaled_job_of_an_earlier_version_stay() -> None:
    raw = {**flinkjob()["spec"], "autoscaling": {"enabled": True, "max": 8}}
    name = f"weather-{former_revision_hash(spec(autoscaling=raw['autoscaling']))}"
    subject = make_context().subject
    found, used = spec_with_defaults(raw, subject, {name: {}}, Preset({"configuration": {"a": "b"}}))
    assert (dict(used), "a" in found.configuration) == ({}, False)


@pytest.mark.parametrize(
    "changes",
    [
        {"job": {"allowNonRestoredState": ["dedup"]}},
        {"job": {"restartNonce": 1}},
        {"job": {"upgradeMode": "stateless"}},
        {"image": "job:2"},
    ],
)
def test_a_rejected_spec_is_retried_when_a_relevant_field_changes(changes: dict[str, Any]) -> None:
    assert fingerprint(spec()) != fingerprint(spec(**changes))


@pytest.mark.parametrize(
    ("changes", "digest"),
    [
        ({}, "1ddfc37b72"),
        ({"ingress": {"host": "weather.example"}}, "9be8ab01d9"),
        ({"ingress": {"host": "weather.example", "path": "/", "pathType": "Prefix"}}, "9be8ab01d9"),
        (
            {
                "ingress": {"host": "weather.example", "className": "nginx", "annotations": {"a": "b"}},
                "networkPolicy": {"enabled": False, "restFrom": [{"podSelector": {}}]},
                "serviceAccount": {"annotations": {"role": "x"}},
            },
            "02256a30cc",
        ),
    ],
)
def test_a_rejected_spec_is_recognized_by_its_former_fingerprint(changes: dict[str, Any], digest: str) -> None:
    """If this fails, a new version of the operator would stop running jobs to retry the specs that it has rejected."""
    assert fingerprint(spec(**changes)) == digest


@pytest.mark.parametrize("field", ["ingress", "network_policy", "service_account"])
def test_a_field_of_a_later_version_does_not_change_a_fingerprint(field: str) -> None:
    before = spec(ingress={"host": "weather.example"})
    part = getattr(before, field)

    class Later(type(part)):
        added: str = "default"

    def with_part(**values: Any) -> FlinkJobSpec:
        return before.model_copy(update={field: Later.model_validate({**part.to_manifest(), **values})})

    assert fingerprint(with_part()) == fingerprint(before)
    assert fingerprint(with_part(added="other")) != fingerprint(before)


@pytest.mark.parametrize(
    "changes", [{"job": {"parallelism": 5}}, {"rollback": {"enabled": False}}, {"deletion": {"savepoint": True}}]
)
def test_a_rejected_spec_remains_rejected_when_an_irrelevant_field_changes(changes: dict[str, Any]) -> None:
    assert fingerprint(spec()) == fingerprint(spec(**changes))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--input", "s3://bucket/a/very/long/path/to/the/input", "--window", "10 s"],) * 2,
        (["x" * 300, "1"], ["x" * 300, "2"]),
        (["x" * 300], ["x" * 300, "y"]),
        (["a" * 100 + "b" * 100], ["a" * 100 + "c" * 100]),
        ([], ["y" * 200]),
    ],
)
def test_two_sides_of_a_change_have_different_descriptions(before: list[str], after: list[str]) -> None:
    after = [*after[:-1], after[-1].replace("10 s", "20 s")]
    [change] = diff(spec(job={"args": before}), spec(job={"args": after}))
    left, right = str(change).removeprefix("job.args: ").split(" → ")
    assert left != right
    assert max(len(left), len(right)) <= 64
