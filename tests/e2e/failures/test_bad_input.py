"""Invalid edits: each is refused immediately, or reported with field and remedy. The same job continues to run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from penstock.checkpoint.store.local_store import TEMPORARY_SUFFIX
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import JobHarness
from tests.e2e.stack import BUCKET
from tools.devcluster.cluster import KubectlFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]

WRONG_KEYS = "e2e-wrong-keys"


@dataclass(frozen=True)
class Bad:
    """An edit, and the expected message of `Stalled`. `{name}` in texts is the name of one of the fixture's paths.

    Args:
        spec: fields that override those of the job's spec.
        words: parts of the message: field, value, remedy.
    """

    reason: str
    spec: dict[str, Any]
    words: tuple[str, ...]


def redeploy(path: str) -> dict[str, Any]:
    return {"job": {"initialSavepointPath": path, "savepointRedeployNonce": 1}}


ISOLATION = {
    "serviceAccountName": "default",
    "volumes": [{"name": "node", "hostPath": {"path": "/"}}],
    "containers": [{"name": "penstock", "securityContext": {"privileged": True}}],
}
CONFIG_MAP_MISSING = {"name": "penstock", "envFrom": [{"configMapRef": {"name": "no-such-map"}}]}
BAD: dict[str, Bad] = {
    "bucket-that-does-not-exist": Bad(
        "StorageUnavailable",
        {"storage": {"savepoints": "s3://no-such-bucket/savepoints"}, "job": {"restartNonce": 1}},
        ("spec.storage.savepoints", "s3://no-such-bucket/savepoints", "cannot be written"),
    ),
    "wrong-keys": Bad(
        "StorageUnavailable",
        {"storage": {"secretName": WRONG_KEYS}},
        ("spec.storage.secretName", f"s3://{BUCKET}/"),
    ),
    "secret-that-does-not-exist": Bad(
        "SecretMissing",
        {"storage": {"secretName": "no-such-secret"}},
        ("spec.storage.secretName", "the Secret no-such-secret does not exist", "Create"),
    ),
    "config-map-that-does-not-exist": Bad(
        "ContainerConfigError",
        {"podTemplate": {"spec": {"containers": [CONFIG_MAP_MISSING]}}},
        ('configmap "no-such-map" not found', "Create"),
    ),
    "savepoint-missing": Bad(
        "SavepointInvalid", redeploy("{missing}"), ("spec.job.initialSavepointPath", "{missing}", "Correct")
    ),
    "savepoint-torn": Bad(
        "SavepointInvalid", redeploy("{torn}"), ("spec.job.initialSavepointPath", "{torn}", "missing", "Correct")
    ),
    "savepoint-of-another-job": Bad(
        "CheckFailed", redeploy("{foreign}"), ("spec.job.initialSavepointPath", "nothing matches", "'counted'")
    ),
    "operator-with-state-is-gone": Bad(
        "CheckFailed", {"job": {"args": ["--without-windows"]}}, ("spec.job.allowNonRestoredState", "'sums'", "uid")
    ),
    "state-of-another-type": Bad(
        "CheckFailed", {"job": {"args": ["--retyped"]}}, ("operator 'check'", "was int and is str", "new state name")
    ),
    "pods-without-isolation": Bad(
        "InvalidSpec",
        {"podTemplate": {"spec": ISOLATION}},
        (
            "spec.podTemplate.spec.volumes[0].hostPath",
            "spec.podTemplate.spec.containers[0].securityContext.privileged",
            "spec.podTemplate.spec.serviceAccountName",
            "Remove it",
        ),
    ),
}


@pytest.fixture
def job(deploy: Callable[..., Job]) -> Job:
    """Start the job with its original spec."""
    return deploy("edited", parallelism=1).wait_until_running()


@pytest.fixture(scope="module")
def paths(stack: Stack, deploy: Callable[..., Job]) -> dict[str, str]:
    """Return savepoints from which the job cannot start, by their defect."""
    job = deploy("edited", parallelism=1).wait_until_running()
    job.wait_for_output()
    good = job.savepoint(1)
    fs, source = fsspec.core.url_to_fs(good, **stack.s3.storage_options())
    torn = f"{source}-torn"
    fs.copy(source, torn, recursive=True)
    fs.rm_file(sorted(fs.find(f"{torn}/shared"))[0])
    add_wrong_keys(stack)
    return {
        "missing": f"{job.folder}/savepoints/nowhere",
        "torn": f"s3://{torn}",
        "foreign": checkpoint_of_another_job(fs, f"{job.folder}/foreign"),
    }


def add_wrong_keys(stack: Stack) -> None:
    values = {"AWS_ACCESS_KEY_ID": stack.s3.access_key, "AWS_SECRET_ACCESS_KEY": "guessed"}
    values |= {"AWS_ENDPOINT_URL": stack.s3.endpoint_url, "AWS_REGION": stack.s3.credentials.region}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": WRONG_KEYS}, "stringData": values}
    stack.cluster.apply(json.dumps(secret))


class Counted(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value


def checkpoint_of_another_job(fs: Any, url: str) -> str:
    """Create real state under other uids, with all of its files."""
    with JobHarness() as harness:
        words = harness.source("words")
        harness.collect(words.key_by(str).process(Counted()).uid("counted"), "counts")
        harness.push("words", "a", "b")
        folder, _, name = harness.snapshot().location.removeprefix("file://").rpartition("/")
        for path in sorted(Path(folder).rglob("*")):
            # The pointer may still be moving to the new checkpoint.
            if path.is_file() and path.suffix != TEMPORARY_SUFFIX:
                fs.put_file(str(path), f"{url}/{path.relative_to(folder)}")
    return f"{url}/{name}"


def filled(thing: Any, paths: Mapping[str, str], job: Job) -> Any:
    """Return the value with the paths filled in, and the program's original arguments before further ones."""
    if isinstance(thing, dict):
        return {key: job.args(*value) if key == "args" else filled(value, paths, job) for key, value in thing.items()}
    return thing.format(**paths) if isinstance(thing, str) else thing


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_edit_is_explained_and_changes_nothing(case: str, job: Job, paths: dict[str, str]) -> None:
    bad = BAD[case]
    before, pods = job.status["jobId"], job.pod_names("master") | job.pod_names("worker")
    job.edit(filled(bad.spec, paths, job))
    message = job.wait_until_stalled(bad.reason)
    for words in bad.words:
        assert words.format(**paths) in message, message
    assert job.condition("Running")["status"] == "True"

    job.wait_for_output()
    assert job.status["jobId"] == before
    assert job.pod_names("master") | job.pod_names("worker") == pods
    job.apply().wait_until_running()
    assert job.status["jobId"] == before, "reverting the edit does not restart the job"


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown-field": ({"job": {"paralellism": 3}}, "spec.job.paralellism", "unknown field"),
    "parallelism": ({"job": {"parallelism": 200}}, "spec.job.parallelism", "must not be greater than maxParallelism"),
    "max-parallelism": ({"job": {"maxParallelism": 256}}, "spec.job.maxParallelism", "create a new FlinkJob"),
    "checkpoints": ({"storage": {"checkpoints": f"s3://{BUCKET}/x"}}, "spec.storage.checkpoints", "take a savepoint"),
}


def test_an_edit_that_the_api_server_refuses_changes_nothing(job: Job) -> None:
    before = job.object
    for spec, field, words in REFUSED.values():
        with pytest.raises(KubectlFailed) as refused:
            job.edit(spec)
        assert field in refused.value.stderr, refused.value.stderr
        assert words in refused.value.stderr, refused.value.stderr
    with pytest.raises(KubectlFailed, match="maxParallelism"):
        job.scale(129)
    after = job.object
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["status"]["jobId"] == before["status"]["jobId"]
    job.wait_for_output()


def test_state_may_be_dropped_if_its_uid_is_allowed(job: Job, paths: dict[str, str]) -> None:
    """Allow the edit that was refused above. A later initialSavepointPath has no effect, whatever it names."""
    before = job.status["jobId"]
    allowed = {"allowNonRestoredState": ["sums", "windows-sink"], "initialSavepointPath": paths["missing"]}
    job.edit({"job": {"args": job.args("--without-windows"), **allowed}})
    job.wait_until_running()
    job.wait_for_output()
    after = job.status
    assert after["jobId"] != before
    assert after["running"]["restoredFrom"]["kind"] == "Savepoint"
    assert after["running"]["restoredFrom"]["path"].startswith(f"{job.folder}/savepoints/")
