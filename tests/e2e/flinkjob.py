"""A self-verifying FlinkJob under the control of a test."""

from __future__ import annotations

import copy
import json
import time
from typing import TYPE_CHECKING, Any

from tests.e2e import images
from tests.e2e.output import Gap, Output
from tests.e2e.stack import BUCKET, SECRET, Stack, wait_until
from tests.integration.engine.selfcheck.job import Plan
from tools.devcluster.cluster import KubectlFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAN = Plan(per_key=1_000_000, keys=8, splits=4, rate=40.0)
"""A plan that does not end within a test. It has 5 numbers per second of each key."""
PATIENCE = 240.0
"""Seconds for one operation on a busy machine."""
SMALL = {"requests": {"cpu": "10m", "memory": "128Mi"}}


class Job:
    """One FlinkJob.

    Args:
        parallelism: number of subtasks, each with one slot in one pod.
        spec: fields that override those of the manifest.
    """

    def __init__(
        self, stack: Stack, name: str, *, parallelism: int = 2, spec: Mapping[str, Any] | None = None, plan: Plan = PLAN
    ) -> None:
        self.stack = stack
        self.name = name
        self.plan = plan
        self.folder = f"s3://{BUCKET}/{name}-{time.time_ns():x}"
        self.output = Output(plan, f"{self.folder}/output", stack.s3.storage_options())
        self.manifest: dict[str, Any] = {
            "apiVersion": "penstock.dev/v1beta1",
            "kind": "FlinkJob",
            "metadata": {"name": name},
            "spec": {
                "image": images.GOOD,
                "job": {"entry": "job.py", "args": self.args(), "parallelism": parallelism},
                "configuration": {
                    "execution.checkpointing.interval": "2s",
                    "penstock.runner": "pipelined",
                    "restart-strategy.type": "fixed-delay",
                    "restart-strategy.fixed-delay.attempts": 1000,
                    "restart-strategy.fixed-delay.delay": "1 s",
                },
                "storage": {
                    "checkpoints": f"{self.folder}/checkpoints",
                    "savepoints": f"{self.folder}/savepoints",
                    "secretName": SECRET,
                },
                "master": {"resources": copy.deepcopy(SMALL)},
                "worker": {"resources": copy.deepcopy(SMALL)},
                "rollback": {"after": "4m"},
            },
        }
        _lay_over(self.manifest["spec"], spec or {})

    def args(self, *more: str) -> list[str]:
        """Return the program's arguments, with `more` at the end."""
        plan = self.plan
        return [
            *("--output", self.output.url),
            *("--per-key", str(plan.per_key), "--keys", str(plan.keys)),
            *("--splits", str(plan.splits), "--rate", str(plan.rate)),
            *more,
        ]

    def write_to(self, folder: str) -> None:
        """Use a separate output folder for the next revision that gets `args()`. `output` then reads this folder."""
        self.output = Output(self.plan, f"{self.folder}/{folder}", self.stack.s3.storage_options())

    # --- actions ----------------------------------------------------------------------------------------------

    def apply(self) -> Job:
        """Create the job, or restore its spec from the manifest."""
        self.stack.cluster.apply(json.dumps(self.manifest))
        return self

    def edit(self, spec: Mapping[str, Any]) -> None:
        """Apply the manifest with these fields of its spec. Earlier edits are lost."""
        manifest = copy.deepcopy(self.manifest)
        _lay_over(manifest["spec"], spec)
        self.stack.cluster.apply(json.dumps(manifest))

    def patch(self, **spec: Any) -> None:
        """Merge fields into the spec."""
        body = json.dumps({"spec": spec})
        self.stack.cluster.kubectl("patch", "fj", self.name, "--type=merge", "-p", body)

    def patch_job(self, **fields: Any) -> None:
        """Merge fields into `spec.job`."""
        self.patch(job=fields)

    def scale(self, parallelism: int) -> None:
        self.stack.cluster.kubectl("scale", f"fj/{self.name}", f"--replicas={parallelism}")

    def savepoint(self, nonce: int) -> str:
        """Trigger a savepoint while the job runs, and return its path."""
        known = {s["metadata"]["name"] for s in self._savepoints()}
        self.patch_job(savepointTriggerNonce=nonce)

        def made() -> list[str]:
            return [s["status"]["path"] for s in self._savepoints() if s["metadata"]["name"] not in known]

        wait_until(made, lambda: self.describe_missing("the savepoint"), seconds=120)
        return made()[0]

    def _savepoints(self) -> list[dict[str, Any]]:
        """Return the complete savepoints that a nonce triggered."""
        found = self.stack.list("fsnap", f"penstock.dev/job={self.name},penstock.dev/trigger=nonce")
        return [s for s in found if s.get("status", {}).get("state") == "Completed"]

    def delete(self, *, wait: float = PATIENCE, cascade: str = "background") -> None:
        """Delete the job, and wait until it is gone."""
        how = f"--cascade={cascade}"
        self.stack.cluster.kubectl("delete", "fj", self.name, how, "--wait=false", "--ignore-not-found")
        wait_until(
            lambda: self.stack.get("fj", self.name) is None, lambda: self.describe_missing("its deletion"), seconds=wait
        )

    def kill_pod(self, role: str) -> str:
        """Kill one pod immediately, and return its name."""
        name: str = self.pods(role)[0]["metadata"]["name"]
        self.stack.cluster.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
        return name

    # --- queries ----------------------------------------------------------------------------------------------

    @property
    def object(self) -> dict[str, Any]:
        return self.stack.get("fj", self.name) or {}

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.object.get("status") or {}
        return status

    def condition(self, kind: str, status: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return one condition, or an empty dict if it does not exist."""
        found = (status or self.status).get("conditions", ())
        return next((dict(c) for c in found if c["type"] == kind), {})

    def pods(self, role: str) -> list[dict[str, Any]]:
        """Return the pods that are not being deleted."""
        found = self.stack.list("pods", f"penstock.dev/job={self.name},penstock.dev/role={role}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pod_names(self, role: str) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods(role)}

    def events(self) -> list[str]:
        """Return reasons and messages, oldest first."""
        return [f"{e['reason']}: {e['message']}" for e in self.event_objects()]

    def event_objects(self) -> list[dict[str, Any]]:
        """Return the events, oldest first."""
        found = self.stack.list("events")
        mine = [
            e for e in found if e["involvedObject"]["name"] == self.name and e["involvedObject"]["kind"] == "FlinkJob"
        ]
        return sorted(mine, key=lambda e: (e.get("lastTimestamp") or "", e["metadata"].get("creationTimestamp") or ""))

    def table(self, *, wide: bool = False) -> dict[str, str]:
        """Return the row of `kubectl get fj`, by column."""
        printed = self.stack.cluster.kubectl("get", "fj", self.name, *(("-o", "wide") if wide else ()))
        header, line = printed.splitlines()[:2]
        starts = [i for i, c in enumerate(header) if c != " " and (i == 0 or header[i - 1] == " ")]
        ends = [*starts[1:], None]
        return {header[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)}

    def describe_missing(self, description: str) -> str:
        """Return everything that explains why `what` did not happen."""
        shown = {k: v for k, v in self.status.items() if k not in ("history", "superseded")}
        pods = self.stack.cluster.kubectl("get", "pods", "-o", "wide")
        parts = [f"{self.name}: {description}", json.dumps(shown, indent=1), "\n".join(self.events()[-15:]), pods]
        for role in ("master", "worker"):
            for pod in self.pods(role)[:2]:
                try:
                    parts.append(self.stack.cluster.kubectl("logs", pod["metadata"]["name"], "--tail=40"))
                except KubectlFailed as error:
                    parts.append(str(error))
        return "\n---\n".join([*parts, self.stack.operator_log()])

    # --- waiting ----------------------------------------------------------------------------------------------

    def wait_for(self, *, ready: bool = True, seconds: float = PATIENCE, **fields: Any) -> float:
        """Wait until the status is of this generation, has these fields, and Ready has this value. Return the seconds."""

        def reached() -> bool:
            found = self.object
            status = found.get("status") or {}
            current = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
            is_ready = self.condition("Ready", status).get("status") == ("True" if ready else "False")
            return current and is_ready and all(status.get(key) == value for key, value in fields.items())

        return wait_until(reached, lambda: self.describe_missing(f"Ready={ready} {fields}"), seconds=seconds)

    def wait_until_running(self, *, seconds: float = PATIENCE) -> Job:
        """Wait until the job is Ready and RUNNING without an operation in progress."""
        self.wait_for(phase="Running", seconds=seconds)
        return self

    def wait_until_stalled(self, reason: str, *, seconds: float = PATIENCE) -> str:
        """Wait until the current spec is Stalled for this reason, and return the message."""
        message = ""

        def reached() -> bool:
            nonlocal message
            found = self.object
            condition = self.condition("Stalled", found.get("status"))
            message = condition.get("message", "")
            current = condition.get("observedGeneration") == found.get("metadata", {}).get("generation")
            return current and condition.get("status") == "True" and condition.get("reason") == reason

        wait_until(reached, lambda: self.describe_missing(f"Stalled with {reason}"), seconds=seconds)
        return message

    def wait_for_output(self, *, seconds: float = PATIENCE) -> None:
        """Wait for new output, then verify all output."""
        before = self.output.count
        wait_until(lambda: self.output.count > before, lambda: self.describe_missing("more output"), seconds=seconds)
        self.output.verify()

    def record_gap(self, description: str, began: float, *, goal: float) -> Gap:
        """Record how long the output paused since that moment."""
        gap = self.output.gap_since(began)
        self.stack.report.append(f"{description}: {gap}; goal {goal:.0f} s on an idle machine")
        return gap


def _lay_over(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _lay_over(base[key], value)
        else:
            base[key] = value
