"""Status fields that had another name in version 0.1.0. The operator reads both names, and writes only the new one."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_operator.api.schema.crds import all_crds
from penstock_operator.api.status.flinkjob_status import FlinkJobStatus, parse_status

TIME = "2026-01-02T03:04:05Z"
RUNNING = {
    "revision": "weather-1",
    "generation": 1,
    "jobId": "a" * 32,
    "image": "job:1",
    "parallelism": 2,
    "startedAt": TIME,
    "restoredFrom": {"kind": "empty"},
}
SAVEPOINT = {"directory": "s3://b/1", "kind": "Upgrade", "jobId": "a" * 32, "time": TIME}
ENDS = {"jobId": "a" * 32}


NAMES = {
    "former": ("door", "told", "askedSavepoints"),
    "new": ("serviceSuffix", "countedRestarts", "requestedSavepoints"),
}


def status(value: str, name: str) -> dict[str, Any]:
    """Return a status with this value in the three fields, under their former or their new names."""
    suffix, counted, requested = NAMES[name]
    return {
        "running": {**RUNNING, suffix: value},
        "ends": {**ENDS, counted: {value: 3}},
        requested: [{**SAVEPOINT, "directory": value}],
    }


def values(read: FlinkJobStatus) -> tuple[str, dict[str, int], list[str]]:
    assert read.running is not None
    assert read.ends is not None
    return read.running.service_suffix, read.ends.counted_restarts, [s.directory for s in read.requested_savepoints]


@pytest.mark.parametrize("name", ["former", "new"])
def test_both_names_are_read_and_the_new_one_is_written(name: str) -> None:
    read = parse_status(status("-1", name))
    assert values(read) == ("-1", {"-1": 3}, ["-1"])
    assert read.to_manifest()["running"]["serviceSuffix"] == "-1"
    assert read.to_manifest() == parse_status(status("-1", "new")).to_manifest()


def test_the_new_field_wins_over_the_former_one() -> None:
    former, new = status("-1", "former"), status("-2", "new")
    both = former | new
    both |= {part: former[part] | new[part] for part in ("running", "ends")}
    assert values(parse_status(both)) == ("-2", {"-2": 3}, ["-2"])


def test_an_invalid_former_field_does_not_hide_the_other_fields() -> None:
    read = parse_status({**status("-1", "former"), "askedSavepoints": 7})
    assert read.requested_savepoints == ()
    assert read.running is not None
    assert read.running.service_suffix == "-1"


def test_the_api_server_keeps_the_former_fields_until_the_operator_reads_them() -> None:
    """The API server removes fields that the CRD does not have, also from stored objects."""
    crd = all_crds()["flinkjobs.penstock.dev.yaml"]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    for fields, new, former in [
        (schema["running"]["properties"], "serviceSuffix", "door"),
        (schema["ends"]["properties"], "countedRestarts", "told"),
        (schema, "requestedSavepoints", "askedSavepoints"),
    ]:
        types = [{key: part for key, part in fields[name].items() if key != "description"} for name in (new, former)]
        assert types[0] == types[1], former
        assert fields[former]["description"].startswith(f"Former name of `{new}`")
