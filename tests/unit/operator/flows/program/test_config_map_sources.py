"""Programs in a ConfigMap of the user: an edit is an upgrade, and a rollback returns to the former content."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_operator.api.validation import parse_spec
from penstock_operator.errors import SpecError
from penstock_operator.resources.names import JOB, ROLE
from tests.unit.operator.flows.program.test_scripts import master, mounted
from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.kubernetes.kubelet import NAME
from tests.unit.operator.world.scenarios.scenario import deployed, played, rejected, running, stalled

ENTRY = "/etc/penstock/source/job.py"
SOURCE = {"configMap": {"name": "program"}}


def put(world: World, data: dict[str, str], **fields: Any) -> None:
    """Create or replace the ConfigMap of the user."""
    if world.cluster.one("ConfigMap", "program") is not None:
        world.cluster.drop("ConfigMap", "default", "program")
    meta = {"name": "program", "namespace": "default"}
    world.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data, **fields})


def copies(world: World) -> list[dict[str, str]]:
    """Return the files of the program in the operator's ConfigMaps."""
    found = world.cluster.select("ConfigMap", None, {JOB: NAME})
    return [
        {key.removeprefix("source."): text for key, text in m["data"].items() if key.startswith("source.")}
        for m in found
        if any(key.startswith("source.") for key in m["data"])
    ]


def test_the_files_of_a_config_map_run_from_a_copy() -> None:
    files = {"job.py": "import words\n", "words.py": "pass\n"}

    async def story(world: World) -> None:
        put(world, files)
        await deployed(world, flinkjob(source=SOURCE))
        assert copies(world) == [files]
        ((name, paths),) = mounted(master(world))
        assert name != "program"
        assert paths == ["penstock.yaml", "source/job.py", "source/words.py"]
        args = master(world)["spec"]["containers"][0]["args"]
        assert args[args.index("--entry") + 1] == ENTRY
        for role in ("master", "worker"):
            for pod in world.cluster.select("Pod", None, {JOB: NAME, ROLE: role}):
                path = {"name": "PENSTOCK_PACKAGES", "value": "/etc/penstock/source"}
                assert path in pod["spec"]["containers"][0]["env"]
                assert "initContainers" not in pod["spec"]

    played(story)


def test_an_edit_of_the_config_map_is_an_upgrade_with_a_check() -> None:
    async def story(world: World) -> None:
        put(world, {"job.py": "first = 1\n"})
        await deployed(world, flinkjob(source=SOURCE))
        before = world.status()["running"]["revision"]
        put(world, {"job.py": "second = 2\n"})
        checked: list[list[str]] = []

        def upgraded() -> bool:
            checked.extend(mounted(pod)[0][1] for pod in world.cluster.select("Pod", None, {JOB: NAME, ROLE: "check"}))
            return running(world) and world.status()["running"]["revision"] != before

        await world.until(upgraded)
        assert checked[0] == ["source/job.py"]
        assert copies(world) == [{"job.py": "second = 2\n"}]
        assert world.savepoints, "the state is kept"

    played(story)


def test_a_rollback_returns_to_the_content_before_the_edit() -> None:
    async def story(world: World) -> None:
        put(world, {"job.py": "first = 1\n"})
        await deployed(world, flinkjob(source=SOURCE))
        before = world.status()["running"]["revision"]
        world.images["job:1"] = Image(starts=False)
        put(world, {"job.py": "second = 2\n"})
        await world.until(lambda: copies(world) == [{"job.py": "second = 2\n"}])

        def returned() -> bool:
            if copies(world) == [{"job.py": "first = 1\n"}]:
                world.images["job:1"] = Image()
            return rejected(world) and bool(world.status()["running"]["revision"] == before)

        await world.until(returned)
        assert copies(world) == [{"job.py": "first = 1\n"}]
        await world.run(300)
        assert world.status()["running"]["revision"] == before, "the failed content is not tried again"
        put(world, {"job.py": "third = 3\n"})
        await world.until(lambda: running(world) and copies(world) == [{"job.py": "third = 3\n"}])

    played(story)


def test_a_change_of_the_name_with_the_same_content_restarts_nothing() -> None:
    async def story(world: World) -> None:
        put(world, {"job.py": "first = 1\n"})
        await deployed(world, flinkjob(source=SOURCE))
        job_id = world.status()["jobId"]
        other = {"name": "other", "namespace": "default"}
        data = {"job.py": "first = 1\n"}
        world.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": other, "data": data})
        world.edit(job={"source": {"configMap": {"name": "other"}}})
        await world.run(120)
        assert running(world)
        assert world.status()["jobId"] == job_id

    played(story)


@pytest.mark.parametrize(
    ("data", "fields", "words"),
    [
        (None, {}, "ConfigMap program does not exist. Create it in the namespace default"),
        ({}, {}, "the ConfigMap has no files"),
        ({"other.py": ""}, {}, "spec.job.entry: 'job.py' is not a file of the source. Name one of its files: other.py"),
        ({"job.py": "x" * 300_000}, {}, "1 files with 300000 bytes are too many"),
        ({"job.py": "", "..data": ""}, {}, "this is not a name of a file"),
        ({"job.py": ""}, {"binaryData": {"model.bin": "AA=="}}, "binary files are not supported: model.bin"),
    ],
)
def test_a_config_map_without_a_program_is_reported_and_the_job_runs_on(
    data: dict[str, str] | None, fields: dict[str, Any], words: str
) -> None:
    async def story(world: World) -> None:
        put(world, {"job.py": "first = 1\n"})
        await deployed(world, flinkjob(source=SOURCE))
        job_id = world.status()["jobId"]
        if data is None:
            world.cluster.drop("ConfigMap", "default", "program")
        else:
            put(world, data, **fields)
        await world.until(lambda: stalled(world, "InvalidSpec", words))
        assert world.status()["jobId"] == job_id
        put(world, {"job.py": "first = 1\n"})
        await world.until(lambda: running(world) and not world.stalled())
        assert world.status()["jobId"] == job_id

    played(story)


def test_files_in_the_manifest_need_no_config_map() -> None:
    async def story(world: World) -> None:
        await deployed(world, flinkjob(source={"files": {"job.py": "first = 1\n"}}))
        assert copies(world) == [{"job.py": "first = 1\n"}]

    played(story)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({}, "spec.job.source: it names no program. Set exactly one of url, files, configMap, git and image"),
        ({**SOURCE, "files": {"job.py": ""}}, "spec.job.source: files and configMap are set"),
        ({"url": "https://a/b.zip"}, "spec.job.source.sha256: the checksum of the file is missing"),
        ({**SOURCE, "sha256": "a" * 64}, "spec.job.source.sha256: only a file at a url has a checksum"),
        ({"configMap": {"name": "../secrets/x"}}, "spec.job.source.configMap.name"),
        ({"files": {"../job.py": ""}}, "spec.job.source.files.../job.py: this is not a name of a file"),
        ({"files": {"main.py": ""}}, "spec.job.entry: 'job.py' is not a file of the source"),
        ({"files": {f"m{i}.py": "" for i in range(101)}}, "spec.job.source.files"),
    ],
)
def test_a_wrong_source_is_refused_with_its_field(source: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_spec(flinkjob(source=source)["spec"])
    assert words in str(raised.value)
