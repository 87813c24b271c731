"""Programs without an image: in the manifest, on S3, in a ConfigMap or in a git repository, with packages to install."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zipfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
import yaml

from tests.e2e.stack import BUCKET, SECRET, Stack, wait_until
from tests.git_server import GitServer, Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]

MANIFEST = Path(__file__).resolve().parents[3] / "docs/operator/quickstart/wordcount.yaml"
NAME = "wordcount"
FOLDER = f"s3://{BUCKET}/{time.time_ns():x}"  # the S3 server keeps the files of earlier runs
OUTPUT = f"{FOLDER}/{NAME}/output"
WHEEL = "tally-1.0-py3-none-any.whl"


def manifest() -> dict[str, Any]:
    """Return the manifest of the documentation, with the bucket and the Secret of the tests."""
    text = MANIFEST.read_text().replace("s3://penstock/", f"{FOLDER}/")
    found: dict[str, Any] = yaml.safe_load(text)
    found["spec"]["storage"]["secretName"] = SECRET
    small = {"resources": {"requests": {"cpu": "10m", "memory": "128Mi"}}}
    found["spec"] |= {"master": small, "worker": small}
    return found


def wheel() -> bytes:
    """Return a wheel with the module `tally`."""
    record = BytesIO()
    with zipfile.ZipFile(record, "w") as archive:
        archive.writestr("tally.py", "def add(a, b):\n    return (a[0], a[1] + b[1], 'tallied')\n")
        archive.writestr("tally-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tally\nVersion: 1.0\n")
        archive.writestr("tally-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tally-1.0.dist-info/RECORD", "")
    return record.getvalue()


@pytest.fixture(scope="module")
def wordcount(stack: Stack) -> Iterator[float]:
    """Apply the manifest and return the seconds until the first output."""
    stack.cluster.apply(json.dumps(manifest()))
    took = wait_until(lambda: counted(stack), lambda: missing(stack, "the first output"), seconds=240)
    stack.report.append(f"from kubectl apply of a script to the first output: {took:.0f} s")
    yield took
    stack.cluster.kubectl("delete", "fj", NAME, "--ignore-not-found", "--timeout=120s")


def counted(stack: Stack) -> list[list[Any]]:
    """Return the committed records, which are lists of a word and its count so far."""
    files, _, (root,) = fsspec.get_fs_token_paths(OUTPUT, storage_options=stack.s3.storage_options())
    files.invalidate_cache()
    found = [
        path for path in (files.find(root) if files.exists(root) else ()) if not Path(path).name.startswith((".", "_"))
    ]
    return [json.loads(line) for path in found for line in files.cat_file(path).splitlines()]


def missing(stack: Stack, what: str) -> str:
    described = stack.cluster.kubectl("describe", "fj", NAME)
    return f"{what}\n{described}\n{stack.cluster.kubectl('get', 'pods', '-o', 'wide')}\n{stack.operator_log()}"


def ready(stack: Stack, generation: int) -> bool:
    job = stack.get("fj", NAME) or {}
    status = job.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", ())}
    return conditions.get("Ready") == "True" and status.get("running", {}).get("generation") == generation


def refusal(stack: Stack, name: str) -> str:
    """Return the message of the condition `Stalled`, or an empty string if the job is not stalled."""
    job = stack.get("fj", name) or {}
    found = [c for c in job.get("status", {}).get("conditions", ()) if c["type"] == "Stalled"]
    return found[0].get("message", "") if found and found[0]["status"] == "True" else ""


def counts(records: list[list[Any]], word: str) -> list[int]:
    return sorted(record[1] for record in records if record[0] == word)


def test_a_script_runs_on_the_base_image(stack: Stack, wordcount: float) -> None:
    assert wordcount > 0
    words = {record[0] for record in counted(stack)}
    assert {"to", "be", "or", "not", "that", "is", "the", "question"} >= words
    assert words


def test_another_script_with_a_package_continues_from_the_state(stack: Stack, wordcount: float) -> None:
    wheels = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "wheels", "namespace": "default"},
        "binaryData": {WHEEL: base64.b64encode(wheel()).decode()},
    }
    stack.cluster.apply(json.dumps(wheels))
    changed = manifest()
    spec = changed["spec"]
    script = spec["job"]["script"]
    spec["job"]["script"] = script.replace("import sys\n", "import sys\n\nimport tally\n", 1).replace(
        "lambda a, b: (a[0], a[1] + b[1])", "tally.add"
    )
    assert "tally.add" in spec["job"]["script"]
    spec["job"]["requirements"] = ["--no-index", "--find-links /wheels", "tally==1.0"]
    mount = {"name": "wheels", "mountPath": "/wheels"}
    spec["podTemplate"] = {
        "spec": {
            "volumes": [{"name": "wheels", "configMap": {"name": "wheels"}}],
            "initContainers": [{"name": "penstock-requirements", "volumeMounts": [mount]}],
        }
    }
    stack.cluster.apply(json.dumps(changed))
    generation = (stack.get("fj", NAME) or {})["metadata"]["generation"]
    wait_until(lambda: ready(stack, generation), lambda: missing(stack, "the new script"), seconds=240)

    def tallied() -> list[list[Any]]:
        return [record for record in counted(stack) if len(record) == 3]

    wait_until(tallied, lambda: missing(stack, "output of the new script"), seconds=60)
    records = counted(stack)
    assert counts(records, "question") == list(range(1, len(counts(records, "question")) + 1)), "each count once"
    assert counts(tallied(), "question")[0] > 1, "the new script continues the counts of the old one"


def test_a_program_on_s3_continues_from_the_state_of_the_script(stack: Stack, wordcount: float) -> None:
    changed = manifest()
    job = changed["spec"]["job"]
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        script = job.pop("script").replace("import sys\n", "import sys\n\nfrom weather.counts import add\n", 1)
        archive.writestr("job.py", script.replace("lambda a, b: (a[0], a[1] + b[1])", "add"))
        archive.writestr("weather/counts.py", "def add(a, b):\n    return (a[0], a[1] + b[1], 'fetched', 4)\n")
    target = f"{FOLDER}/{NAME}/program.zip"
    with fsspec.open(target, "wb", **stack.s3.storage_options()) as file:
        file.write(packed.getvalue())
    job |= {"entry": "job.py", "source": {"url": target, "sha256": hashlib.sha256(packed.getvalue()).hexdigest()}}
    stack.cluster.apply(json.dumps(changed))
    generation = (stack.get("fj", NAME) or {})["metadata"]["generation"]
    wait_until(lambda: ready(stack, generation), lambda: missing(stack, "the fetched program"), seconds=240)

    def fetched() -> list[list[Any]]:
        return [record for record in counted(stack) if len(record) == 4]

    wait_until(fetched, lambda: missing(stack, "output of the fetched program"), seconds=60)
    records = counted(stack)
    assert counts(records, "question") == list(range(1, len(counts(records, "question")) + 1)), "each count once"


def test_an_edit_of_a_config_map_continues_from_the_state(stack: Stack, wordcount: float) -> None:
    changed = manifest()
    job = changed["spec"]["job"]
    script = job.pop("script").replace("import sys\n", "import sys\n\nfrom counts import add\n", 1)
    script = script.replace("lambda a, b: (a[0], a[1] + b[1])", "add")

    def put(length: int) -> None:
        """Write a program whose records have this length."""
        rest = ", ".join(["'copied'"] * (length - 2))
        files = {"job.py": script, "counts.py": f"def add(a, b):\n    return (a[0], a[1] + b[1], {rest})\n"}
        meta = {"name": "program", "namespace": "default"}
        stack.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": files}))

    def written(length: int) -> list[list[Any]]:
        return [record for record in counted(stack) if len(record) == length]

    put(5)
    job |= {"entry": "job.py", "source": {"configMap": {"name": "program"}}}
    stack.cluster.apply(json.dumps(changed))
    generation = (stack.get("fj", NAME) or {})["metadata"]["generation"]
    wait_until(lambda: ready(stack, generation), lambda: missing(stack, "the program of the ConfigMap"), seconds=240)
    wait_until(lambda: written(5), lambda: missing(stack, "output of the ConfigMap's program"), seconds=60)
    put(6)
    wait_until(lambda: written(6), lambda: missing(stack, "output of the edited program"), seconds=240)
    assert (stack.get("fj", NAME) or {})["metadata"]["generation"] == generation, "the FlinkJob was not edited"
    wait_until(lambda: ready(stack, generation), lambda: missing(stack, "the stable revision"), seconds=120)
    records = counted(stack)
    assert counts(records, "question") == list(range(1, len(counts(records, "question")) + 1)), "each count once"


def test_a_branch_of_a_git_repository_continues_from_the_state(stack: Stack, wordcount: float, tmp_path: Path) -> None:
    changed = manifest()
    job = changed["spec"]["job"]
    script = job.pop("script").replace("import sys\n", "import sys\n\nfrom counts import add\n", 1)
    files = {
        "streams/words/job.py": script.replace("lambda a, b: (a[0], a[1] + b[1])", "add"),
        "streams/words/counts.py": "def add(a, b):\n    return (a[0], a[1] + b[1], *['from git'] * 5)\n",
        "other/job.py": "raise AssertionError\n",
    }
    commit = Repository(tmp_path / "jobs").commit(files)
    with GitServer(tmp_path, host=stack.cluster.host_address) as server:
        stack.install("--set", f"jobs.gitServers={{{server.url}}}")
        url = f"{server.url}/jobs/.git"
        job |= {"entry": "job.py", "source": {"git": {"url": url, "ref": "main", "path": "streams/words"}}}
        stack.cluster.apply(json.dumps(changed))
        generation = (stack.get("fj", NAME) or {})["metadata"]["generation"]
        wait_until(lambda: ready(stack, generation), lambda: missing(stack, "the program of the branch"), seconds=240)

        def written() -> list[list[Any]]:
            return [record for record in counted(stack) if len(record) == 7]

        wait_until(written, lambda: missing(stack, "output of the branch's program"), seconds=60)
    assert (stack.get("fj", NAME) or {})["status"]["git"]["commit"] == commit
    records = counted(stack)
    assert counts(records, "question") == list(range(1, len(counts(records, "question")) + 1)), "each count once"


def test_a_script_with_an_error_is_refused_and_the_job_runs_on(stack: Stack, wordcount: float) -> None:
    before = (stack.get("fj", NAME) or {})["status"]["running"]["jobId"]
    wrong = manifest()
    wrong["spec"]["job"]["script"] = "import no_such_module\n"
    stack.cluster.apply(json.dumps(wrong))

    wait_until(lambda: refusal(stack, NAME), lambda: missing(stack, "the refusal"), seconds=120)
    assert "no_such_module" in refusal(stack, NAME)
    job = stack.get("fj", NAME) or {}
    assert job["status"]["running"]["jobId"] == before


def test_a_first_script_with_an_error_is_refused_and_leaves_no_pods(stack: Stack) -> None:
    wrong = manifest()
    wrong["metadata"]["name"] = name = "wrong"
    wrong["spec"]["job"]["script"] = "import no_such_module\n"
    stack.cluster.apply(json.dumps(wrong))

    def pods() -> list[dict[str, Any]]:
        return stack.list("pods", f"penstock.dev/job={name}")

    try:
        took = wait_until(lambda: refusal(stack, name), stack.operator_log, seconds=120)
        stack.report.append(f"from kubectl apply of a script with an error to its refusal: {took:.0f} s")
        assert "no_such_module" in refusal(stack, name)
        wait_until(lambda: not pods(), lambda: f"pods are left: {pods()}", seconds=60)
    finally:
        stack.cluster.kubectl("delete", "fj", name, "--ignore-not-found", "--timeout=120s")
