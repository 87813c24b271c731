"""Volumes of the pod template are merged with those of the operator."""

from __future__ import annotations

from typing import Any

from penstock_operator.api.pod_template import check_pod_template
from tests.unit.operator.contexts import make_spec
from tests.unit.operator.resources.test_resources import pods

CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "50Gi"}}}}


def volumes(pod: dict[str, Any]) -> dict[str, Any]:
    return {volume.pop("name"): volume for volume in pod["spec"]["volumes"]}


def test_a_volume_of_the_template_replaces_that_of_the_operator() -> None:
    ssd = {"name": "work", "ephemeral": {"volumeClaimTemplate": CLAIM}}
    shared = {"name": "tmp", "persistentVolumeClaim": {"claimName": "scratch"}}
    master, worker, check = pods(
        make_spec(podTemplate={"spec": {"volumes": [shared]}}, worker={"podTemplate": {"spec": {"volumes": [ssd]}}})
    )
    assert volumes(worker) | {"config": None} == {
        "config": None,
        "work": {"ephemeral": {"volumeClaimTemplate": CLAIM}},
        "tmp": {"persistentVolumeClaim": {"claimName": "scratch"}},
    }
    assert volumes(master)["work"] == {"emptyDir": {}}
    assert volumes(check)["tmp"] == {"persistentVolumeClaim": {"claimName": "scratch"}}


def test_a_volume_of_the_same_kind_is_changed() -> None:
    small = {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}
    memory = {"name": "tmp", "emptyDir": {"medium": "Memory"}}
    worker = pods(
        make_spec(podTemplate={"spec": {"volumes": [small]}}, worker={"podTemplate": {"spec": {"volumes": [memory]}}})
    )[1]
    assert volumes(worker)["tmp"] == {"emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}}


def test_the_volume_with_the_configuration_cannot_be_changed() -> None:
    template = {"spec": {"volumes": [{"name": "config", "emptyDir": {}}]}}
    (problem,) = check_pod_template(template, "t")
    assert str(problem).startswith("t.spec.volumes[0].emptyDir: not allowed: this volume holds the job's configuration")
    more = {"spec": {"volumes": [{"name": "config", "projected": {"sources": [{"configMap": {"name": "ca"}}]}}]}}
    assert not [*check_pod_template(more, "t")]
    assert len(volumes(pods(make_spec(podTemplate=more))[1])["config"]["projected"]["sources"]) == 3
