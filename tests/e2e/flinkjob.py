"""A self-verifying FlinkJob in the tests' hands."""

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
"""Without an end, as far as a test can tell; 5 numbers of each key in a second."""
PATIENCE = 240.0
"""Seconds for one operation on a machine that does other things as well."""
SMALL = {"requests": {"cpu": "10m", "memory": "128Mi"}}


class Job:
    """One FlinkJob.

    Args:
        parallelism: one slot, and so one pod, for each subtask.
        spec: laid over the manifest.
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
        """The program's arguments, and more."""
        plan = self.plan
        return [
            *("--output", self.output.url),
            *("--per-key", str(plan.per_key), "--keys", str(plan.keys)),
            *("--splits", str(plan.splits), "--rate", str(plan.rate)),
            *more,
        ]

    def write_to(self, folder: str) -> None:
        """From the next revision with `args()` on: to a folder of the job's own, whose output is looked at from now on."""
        self.output = Output(self.plan, f"{self.folder}/{folder}", self.stack.s3.storage_options())

    # --- doing ------------------------------------------------------------------------------------------------

    def apply(self) -> Job:
        """Create it, or put its spec back to what the manifest says."""
        self.stack.cluster.apply(json.dumps(self.manifest))
        return self

    def edit(self, spec: Mapping[str, Any]) -> None:
        """Apply the manifest with this laid over its spec, and with nothing that was changed before."""
        manifest = copy.deepcopy(self.manifest)
        _lay_over(manifest["spec"], spec)
        self.stack.cluster.apply(json.dumps(manifest))

    def patch(self, **spec: Any) -> None:
        """Merge into the spec."""
        body = json.dumps({"spec": spec})
        self.stack.cluster.kubectl("patch", "fj", self.name, "--type=merge", "-p", body)

    def patch_job(self, **fields: Any) -> None:
        """Merge into `spec.job`."""
        self.patch(job=fields)

    def scale(self, parallelism: int) -> None:
        self.stack.cluster.kubectl("scale", f"fj/{self.name}", f"--replicas={parallelism}")

    def savepoint(self, nonce: int) -> str:
        """Have one made while the job runs on; its path."""
        known = {s["metadata"]["name"] for s in self._savepoints()}
        self.patch_job(savepointTriggerNonce=nonce)

        def made() -> list[str]:
            return [s["status"]["path"] for s in self._savepoints() if s["metadata"]["name"] not in known]

        wait_until(made, lambda: self.told("the savepoint"), seconds=120)
        return made()[0]

    def _savepoints(self) -> list[dict[str, Any]]:
        """Complete ones that a nonce asked for."""
        found = self.stack.list("fsnap", f"penstock.dev/job={self.name},penstock.dev/trigger=nonce")
        return [s for s in found if s.get("status", {}).get("state") == "Completed"]

    def delete(self, *, wait: float = PATIENCE, cascade: str = "background") -> None:
        """And wait until it has gone."""
        how = f"--cascade={cascade}"
        self.stack.cluster.kubectl("delete", "fj", self.name, how, "--wait=false", "--ignore-not-found")
        wait_until(lambda: self.stack.get("fj", self.name) is None, lambda: self.told("its deletion"), seconds=wait)

    def kill_pod(self, role: str) -> str:
        """One pod at once; its name."""
        name: str = self.pods(role)[0]["metadata"]["name"]
        self.stack.cluster.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
        return name

    # --- looking ----------------------------------------------------------------------------------------------

    @property
    def object(self) -> dict[str, Any]:
        return self.stack.get("fj", self.name) or {}

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.object.get("status") or {}
        return status

    def condition(self, kind: str, status: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One condition; empty if it is not there."""
        found = (status or self.status).get("conditions", ())
        return next((dict(c) for c in found if c["type"] == kind), {})

    def pods(self, role: str) -> list[dict[str, Any]]:
        """Those that are not on their way out."""
        found = self.stack.list("pods", f"penstock.dev/job={self.name},penstock.dev/role={role}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pod_names(self, role: str) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods(role)}

    def events(self) -> list[str]:
        """Reasons and messages, oldest first."""
        return [f"{e['reason']}: {e['message']}" for e in self.event_objects()]

    def event_objects(self) -> list[dict[str, Any]]:
        """Oldest first."""
        found = self.stack.list("events")
        mine = [
            e for e in found if e["involvedObject"]["name"] == self.name and e["involvedObject"]["kind"] == "FlinkJob"
        ]
        return sorted(mine, key=lambda e: (e.get("lastTimestamp") or "", e["metadata"].get("creationTimestamp") or ""))

    def table(self, *, wide: bool = False) -> dict[str, str]:
        """What `kubectl get fj` shows, by column."""
        printed = self.stack.cluster.kubectl("get", "fj", self.name, *(("-o", "wide") if wide else ()))
        header, line = printed.splitlines()[:2]
        starts = [i for i, c in enumerate(header) if c != " " and (i == 0 or header[i - 1] == " ")]
        ends = [*starts[1:], None]
        return {header[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)}

    def told(self, what: str) -> str:
        """Everything a person needs to find out why not."""
        shown = {k: v for k, v in self.status.items() if k not in ("history", "superseded")}
        pods = self.stack.cluster.kubectl("get", "pods", "-o", "wide")
        parts = [f"{self.name}: {what}", json.dumps(shown, indent=1), "\n".join(self.events()[-15:]), pods]
        for role in ("master", "worker"):
            for pod in self.pods(role)[:2]:
                try:
                    parts.append(self.stack.cluster.kubectl("logs", pod["metadata"]["name"], "--tail=40"))
                except KubectlFailed as error:
                    parts.append(str(error))
        return "\n---\n".join([*parts, self.stack.operator_log()])

    # --- waiting ----------------------------------------------------------------------------------------------

    def wait_for(self, *, ready: bool = True, seconds: float = PATIENCE, **fields: Any) -> float:
        """Until the status is of this generation, has these fields, and Ready is that; seconds it took."""

        def reached() -> bool:
            found = self.object
            status = found.get("status") or {}
            current = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
            is_ready = self.condition("Ready", status).get("status") == ("True" if ready else "False")
            return current and is_ready and all(status.get(key) == value for key, value in fields.items())

        return wait_until(reached, lambda: self.told(f"Ready={ready} {fields}"), seconds=seconds)

    def running(self, *, seconds: float = PATIENCE) -> Job:
        """Ready, RUNNING, and no operation in progress."""
        self.wait_for(phase="Running", seconds=seconds)
        return self

    def stalled(self, reason: str, *, seconds: float = PATIENCE) -> str:
        """Until it is Stalled for that reason, as its spec is now; the message."""
        message = ""

        def reached() -> bool:
            nonlocal message
            found = self.object
            condition = self.condition("Stalled", found.get("status"))
            message = condition.get("message", "")
            current = condition.get("observedGeneration") == found.get("metadata", {}).get("generation")
            return current and condition.get("status") == "True" and condition.get("reason") == reason

        wait_until(reached, lambda: self.told(f"Stalled with {reason}"), seconds=seconds)
        return message

    def goes_on(self, *, seconds: float = PATIENCE) -> None:
        """Until there is output that was not there before; then all of it must be right."""
        before = self.output.count
        wait_until(lambda: self.output.count > before, lambda: self.told("more output"), seconds=seconds)
        self.output.verify()

    def measure(self, what: str, began: float, *, goal: float) -> Gap:
        """Note how long the output stood still since then."""
        gap = self.output.gap_since(began)
        self.stack.report.append(f"{what}: {gap}; goal {goal:.0f} s on an idle machine")
        return gap


def _lay_over(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _lay_over(base[key], value)
        else:
            base[key] = value
