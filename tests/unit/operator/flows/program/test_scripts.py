"""Programs that the manifest contains: a script, and the packages that it needs."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_operator.api.validation import parse_spec
from penstock_operator.errors import SpecError
from penstock_operator.resources import program
from penstock_operator.resources.names import JOB, ROLE
from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.kubernetes.kubelet import NAME
from tests.unit.operator.world.scenarios.scenario import deployed, played, running

FIRST = "print('first')\n"
SECOND = "print('second')\n"
SELECT_1, SELECT_2 = "INSERT INTO t SELECT 1", "INSERT INTO t SELECT 2"
ENTRY = "/etc/penstock/program/job.py"


def with_script(script: str = FIRST, **job: Any) -> dict[str, Any]:
    manifest = flinkjob(script=script, **job)
    del manifest["spec"]["job"]["entry"]
    return manifest


def programs(world: World) -> dict[str, str]:
    """Return the scripts in ConfigMaps of the job, by the name of the ConfigMap."""
    found = world.cluster.select("ConfigMap", None, {JOB: NAME})
    return {m["metadata"]["name"]: m["data"]["job.py"] for m in found if "job.py" in m["data"]}


def mounted(pod: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the ConfigMaps that a pod mounts as its configuration, with the paths of their files."""
    (config,) = (v for v in pod["spec"]["volumes"] if v["name"] == "config")
    sources = [s["configMap"] for s in config["projected"]["sources"] if "configMap" in s]
    return [(source["name"], [item["path"] for item in source["items"]]) for source in sources]


def master(world: World) -> dict[str, Any]:
    (pod,) = world.cluster.select("Pod", None, {JOB: NAME, ROLE: "master"})
    return pod


def test_a_script_runs_from_the_configuration_of_its_incarnation() -> None:
    async def story(world: World) -> None:
        await deployed(world, with_script())
        (name,) = programs(world)
        assert mounted(master(world)) == [(name, ["penstock.yaml", "program/job.py"])]
        args = master(world)["spec"]["containers"][0]["args"]
        assert args[args.index("--entry") + 1] == ENTRY

    played(story)


def test_the_check_of_a_script_reads_the_new_script_while_the_old_one_runs() -> None:
    async def story(world: World) -> None:
        await deployed(world, with_script())
        (old,) = programs(world)
        seen: list[dict[str, str]] = []

        def checked() -> bool:
            pods = world.cluster.select("Pod", None, {JOB: NAME, ROLE: "check"})
            if pods:
                (check,) = pods
                assert mounted(check) == [(check["metadata"]["name"], ["program/job.py"])]
                args = check["spec"]["containers"][0]["args"]
                assert args[args.index("--entry") + 1] == ENTRY
                seen.append(programs(world))
            return bool(seen) and running(world, generation=2)

        world.edit(job={"script": SECOND})
        await world.until(checked)
        check = next(name for name in seen[0] if name != old)
        assert seen[0] == {old: FIRST, check: SECOND}
        assert check.startswith(f"{NAME}-check-")
        assert list(programs(world).values()) == [SECOND]
        assert check not in programs(world)

    played(story)


def test_a_change_from_a_script_to_an_image_removes_the_script() -> None:
    async def story(world: World) -> None:
        await deployed(world, with_script())
        world.edit(job={"script": None, "entry": "job.py"})
        await world.until(lambda: running(world, generation=2))
        assert programs(world) == {}
        assert [paths for _, paths in mounted(master(world))] == [["penstock.yaml"]]

    played(story)


def test_sql_statements_run_as_a_file_and_a_change_is_checked_before_the_upgrade() -> None:
    manifest = flinkjob(sql=SELECT_1, requirements=["apache-flink-libraries==2.3.0"])
    del manifest["spec"]["job"]["entry"]

    def statements(world: World) -> list[str]:
        found = world.cluster.select("ConfigMap", None, {JOB: NAME})
        return [m["data"]["job.sql"] for m in found if "job.sql" in m["data"]]

    async def story(world: World) -> None:
        await deployed(world, manifest)
        assert mounted(master(world))[0][1] == ["penstock.yaml", "program/job.sql", "program/requirements.txt"]
        args = master(world)["spec"]["containers"][0]["args"]
        assert args[args.index("--entry") + 1] == "/etc/penstock/program/job.sql"
        checks = []

        def upgraded() -> bool:
            for pod in world.cluster.select("Pod", None, {JOB: NAME, ROLE: "check"}):
                checks.extend(
                    argument for argument in pod["spec"]["containers"][0]["args"] if argument.endswith(".sql")
                )
            return running(world, generation=2)

        world.edit(job={"sql": SELECT_2})
        await world.until(upgraded)
        assert set(checks) == {"/etc/penstock/program/job.sql"}
        assert statements(world) == [SELECT_2]

    played(story)


def test_an_init_container_installs_the_packages_of_every_pod() -> None:
    async def story(world: World) -> None:
        await deployed(world, with_script(requirements=["pandas==2.3", "--no-index"]))
        for role in ("master", "worker"):
            for pod in world.cluster.select("Pod", None, {JOB: NAME, ROLE: role}):
                (installer,) = pod["spec"]["initContainers"]
                main = pod["spec"]["containers"][0]
                assert installer["image"] == main["image"]
                assert installer["command"][-3:] == [
                    "/opt/penstock-packages",
                    "--requirement",
                    "/etc/penstock/program/requirements.txt",
                ]
                assert installer["securityContext"]["readOnlyRootFilesystem"] is True
                assert installer["securityContext"]["runAsNonRoot"] is True
                assert {"name": "PENSTOCK_PACKAGES", "value": "/opt/penstock-packages"} in main["env"]
                assert {m["mountPath"]: m.get("readOnly", False) for m in main["volumeMounts"]}[
                    "/opt/penstock-packages"
                ]
        (found,) = (m for m in world.cluster.select("ConfigMap", None, {JOB: NAME}) if "job.py" in m["data"])
        assert found["data"]["requirements.txt"] == "pandas==2.3\n--no-index\n"

    played(story)


SOURCE = {"url": "s3://bucket/programs/weather.zip", "sha256": "a" * 64}


def test_a_source_is_fetched_before_the_packages_are_installed() -> None:
    async def story(world: World) -> None:
        await deployed(world, flinkjob(source=SOURCE, requirements=["-r /opt/penstock-source/requirements.txt"]))
        for role in ("master", "worker"):
            for pod in world.cluster.select("Pod", None, {JOB: NAME, ROLE: role}):
                fetch, packages = pod["spec"]["initContainers"]
                assert fetch["args"] == [
                    "fetch", SOURCE["url"], "--sha256", SOURCE["sha256"], "--into", "/opt/penstock-source",
                ]  # fmt: skip
                assert fetch["securityContext"]["readOnlyRootFilesystem"] is True
                assert {"name": "penstock-source", "mountPath": "/opt/penstock-source", "readOnly": True} in packages[
                    "volumeMounts"
                ]
                main = pod["spec"]["containers"][0]
                path = {"name": "PENSTOCK_PACKAGES", "value": "/opt/penstock-source:/opt/penstock-packages"}
                assert path in main["env"]
        args = master(world)["spec"]["containers"][0]["args"]
        assert args[args.index("--entry") + 1] == "/opt/penstock-source/job.py"

    played(story)


def test_a_function_in_a_source_is_named_as_in_an_image() -> None:
    spec = parse_spec(flinkjob(source=SOURCE, entry="weather.job:main")["spec"])
    assert program.entry(spec) == "weather.job:main"


def test_another_checksum_is_another_revision() -> None:
    async def story(world: World) -> None:
        await deployed(world, flinkjob(source=SOURCE))
        world.edit(job={"source": {**SOURCE, "sha256": "b" * 64}})
        await world.until(lambda: running(world, generation=2))
        assert "b" * 64 in master(world)["spec"]["initContainers"][0]["args"]

    played(story)


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"source": SOURCE, "entry": "/opt/job/job.py"}, "spec.job.entry"),
        ({"source": SOURCE, "entry": "../job.py"}, "spec.job.entry"),
        ({"source": SOURCE, "script": FIRST, "entry": None}, "spec.job.source"),
        ({"source": {"url": "ftp://a/b.zip", "sha256": "a" * 64}}, "spec.job.source.url"),
        ({"source": {"url": "https://me:secret@a/b.zip", "sha256": "a" * 64}}, "spec.job.source.url"),
        ({"source": {"url": "https://a/b.zip", "sha256": "abc"}}, "spec.job.source.sha256"),
    ],
)
def test_a_wrong_source_is_refused_with_its_field(job: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_spec(flinkjob(**job)["spec"])
    assert field in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_pod_template_adds_to_the_installation_of_packages() -> None:
    own = {"name": "penstock-requirements", "volumeMounts": [{"name": "wheels", "mountPath": "/wheels"}]}
    volume = {"name": "wheels", "configMap": {"name": "wheels"}}

    async def story(world: World) -> None:
        world.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "wheels", "namespace": "default"},
                "data": {},
            }
        )
        manifest = with_script(requirements=["--no-index", "--find-links /wheels", "pandas"])
        manifest["spec"]["podTemplate"] = {"spec": {"initContainers": [own], "volumes": [volume]}}
        await deployed(world, manifest)
        (installer,) = master(world)["spec"]["initContainers"]
        assert installer["volumeMounts"][-1] == own["volumeMounts"][0]
        assert installer["image"] == "job:1"

    played(story)


def test_a_pod_template_cannot_change_the_command_of_the_installation() -> None:
    manifest = with_script(requirements=["pandas"])
    own = {"name": "penstock-requirements", "command": ["sh"]}
    manifest["spec"]["podTemplate"] = {"spec": {"initContainers": [own]}}
    with pytest.raises(SpecError, match=r"initContainers\[0\].command"):
        parse_spec(manifest["spec"])


@pytest.mark.parametrize(
    ("job", "field", "message"),
    [
        ({"script": FIRST, "entry": "job.py"}, "spec.job.entry", "there must be exactly one of entry, script and sql"),
        ({}, "spec.job.entry", "there must be exactly one of entry, script and sql"),
        (
            {"script": "#" + "ä" * 200_000},
            "spec.job.script",
            "the text has 400001 bytes, and 262144 are allowed",
        ),
    ],
)
def test_a_wrong_script_is_refused_with_its_field(job: dict[str, Any], field: str, message: str) -> None:
    manifest = flinkjob(**job)
    if "entry" not in job:
        del manifest["spec"]["job"]["entry"]
    with pytest.raises(SpecError) as raised:
        parse_spec(manifest["spec"])
    assert any(field in str(p) and message in str(p) for p in raised.value.problems), raised.value.problems


def test_a_requirement_is_one_line() -> None:
    with pytest.raises(SpecError, match="requirements"):
        parse_spec(with_script(requirements=["pandas\n--index-url x"])["spec"])
