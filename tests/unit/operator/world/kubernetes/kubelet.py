"""The pods of the simulation: the kubelet starts and ends them, and tests let them fail."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.api.types import format_time
from penstock_operator.reconcile.observe.manifests import CHECK_BEGINS, CHECK_REPORTS, labels_of, parse_time
from penstock_operator.reconcile.observe.terminations import EXIT_STORAGE
from penstock_operator.resources.deployments import CHECK_VARIABLE
from penstock_operator.resources.names import CLUSTER, INCARNATION, JOB, ROLE
from tests.unit.operator.world.engine import FakeJob
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.kubernetes.pods import drops, is_up, running_status, waiting_status

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest
    from tests.unit.operator.world.inputs import PodInputs
    from tests.unit.operator.world.kubernetes.cluster import FakeCluster
    from tests.unit.operator.world.storage import FakeStorage
    from tests.unit.operator.world.world import World

NAME = "weather"
RESTART_PAUSE = timedelta(seconds=3)
"""The pause after which the kubelet restarts a container."""
UNREACHABLE = "node.kubernetes.io/unreachable"
DEFAULT_TOLERATION = 300
"""The time in seconds that the admission plugin DefaultTolerationSeconds sets."""
FENCED_STAY = 60
"""The time in seconds that a fenced master keeps answering."""


class PodFaults:
    """The methods of a world that inject failures."""

    cluster: FakeCluster
    jobs: dict[str, FakeJob]
    """The jobs by the uid of the master's pod."""
    standby_parallelisms: dict[str, int]
    time: datetime
    crashes: int

    def crash_master(self, name: str = NAME) -> None:
        """End the master's process. Its container is restarted."""
        self.crashes += 1
        for pod in self.cluster.select("Pod", None, {JOB: name, ROLE: "master"}):
            self.jobs.pop(pod["metadata"]["uid"], None)
            self.standby_parallelisms.pop(pod["metadata"]["uid"], None)

    def lose_node(self, role: str = "master", name: str = NAME) -> None:
        """Cut off the nodes of these pods: the pods keep running, and their kubelets report nothing."""
        for pod in self.cluster.select("Pod", None, {JOB: name, ROLE: role}):
            unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
            lost = {"x-lost": self.time.isoformat(), "status": {**pod["status"], "conditions": [unknown]}}
            if not pod.get("x-lost"):
                self.cluster.edit("Pod", "default", pod["metadata"]["name"], lambda m, lost=lost: m.update(lost))

    def evict_from_lost_nodes(self) -> None:
        """Delete the pods on lost nodes whose toleration has expired, as the taint eviction controller does."""
        for pod in self.cluster.select("Pod", None, {}):
            lost, meta = pod.get("x-lost"), pod["metadata"]
            if not lost or lost is True or "deletionTimestamp" in meta:  # True: a recorded world, without the time
                continue
            tolerated = (t for t in pod["spec"].get("tolerations", ()) if t["key"] == UNREACHABLE)
            pause = next((t["tolerationSeconds"] for t in tolerated), DEFAULT_TOLERATION)
            if self.time - datetime.fromisoformat(lost) >= timedelta(seconds=pause):
                self.cluster.remove("Pod", "default", meta["name"])

    def recover_nodes(self) -> None:
        """Let all nodes answer again: their kubelets report the running pods, and end the pods that are being deleted."""
        for pod in self.cluster.select("Pod", None, {}):
            if pod.get("x-lost"):
                runs = labels_of(pod).get(ROLE) != "master" or pod["metadata"]["uid"] in self.jobs
                ready = {"type": "Ready", "status": "True" if runs and is_up(pod) else "False"}
                answers = {"x-lost": "", "status": {**pod["status"], "conditions": [ready]}}
                self.cluster.edit("Pod", "default", pod["metadata"]["name"], lambda m, new=answers: m.update(new))

    def reachable(self, role: str, name: str = NAME) -> list[Manifest]:
        """Return the pods on nodes that answer."""
        return [p for p in self.cluster.select("Pod", None, {JOB: name, ROLE: role}) if not p.get("x-lost")]

    def kill_pod(self, role: str, name: str = NAME) -> None:
        """Remove the pod immediately."""
        pod = self.cluster.select("Pod", None, {JOB: name, ROLE: role})[0]
        self.jobs.pop(pod["metadata"]["uid"], None)
        self.cluster.drop("Pod", "default", pod["metadata"]["name"])

    def kill_container(self, role: str, reason: str = "OOMKilled", name: str = NAME) -> bool:
        """Kill the container of a pod, as the kernel does, and let the kubelet restart it.

        Return False if none is up.
        """
        pods = [p for p in self.reachable(role, name) if is_up(p)]
        if not pods or "deletionTimestamp" in pods[0]["metadata"]:
            return False
        pod, restarts = pods[0], pods[0]["status"].get("x-restarts", 0) + 1
        ended = {"exitCode": 137, "reason": reason, "finishedAt": format_time(self.time)}
        own = {
            "name": MAIN_CONTAINER,
            "restartCount": restarts,
            "state": {"waiting": {"reason": "PodInitializing"}},
            "lastState": {"terminated": ended},
        }
        self.jobs.pop(pod["metadata"]["uid"], None)
        status = {**pod["status"], "conditions": [], "containerStatuses": [own], "x-restarts": restarts}
        self._set(pod, {**status, "x-up-at": (self.time + RESTART_PAUSE).isoformat()})
        return True

    def evict(self, role: str, name: str = NAME) -> None:
        """Evict a pod, as the kubelet does. It remains as a record."""
        pod = self.reachable(role, name)[0]
        self.jobs.pop(pod["metadata"]["uid"], None)
        ended = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": format_time(self.time)}}
        own = {"name": MAIN_CONTAINER, "restartCount": 0, "state": ended}
        text = f"The node was low on resource: memory. Container {MAIN_CONTAINER} was using 700Mi, request is 0."
        failed = {"phase": "Failed", "reason": "Evicted", "message": text, "podIP": "10.0.0.1"}
        self._set(pod, {**failed, "containerStatuses": [own]})

    def end_pod(self, role: str, reason: str, message: str, name: str = NAME) -> None:
        """End a pod for a reason of the kubelet, which reports no status for a container that it never started."""
        for pod in self.reachable(role, name):
            ended = {"exitCode": 137, "reason": "ContainerStatusUnknown"}
            if pod["status"].get("phase") == "Running":
                ended = {"exitCode": 137, "reason": "Error"}
            statuses = [{"name": MAIN_CONTAINER, "restartCount": 0, "state": {"terminated": ended}}]
            failed = {"phase": "Failed", "reason": reason, "message": message, "containerStatuses": statuses}
            self._set(pod, failed)

    def _set(self, pod: Manifest, status: dict[str, Any]) -> None:
        if pod["status"] != status:
            self.cluster.edit("Pod", "default", pod["metadata"]["name"], lambda m: m.update(status=status))


class Kubelet(PodFaults):
    """The methods of a world that run the pods: workers, checks, and masters with their jobs."""

    inputs: PodInputs
    storage: FakeStorage
    images: dict[str, Image]
    node_capacity: int
    masters_hang: bool
    zombies: set[str]
    two_masters: list[str]

    def _pod(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        if "deletionTimestamp" in meta:
            if not pod.get("x-lost"):
                self.cluster.drop("Pod", meta["namespace"], meta["name"])
                self.jobs.pop(meta["uid"], None)
            return
        if pod.get("x-lost"):  # its kubelet reports nothing any more
            return
        container = pod["spec"]["containers"][0]
        image = self.images.get(container["image"], Image())
        role = labels_of(pod).get(ROLE)
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            return
        if self._overdue(pod):
            self.end_pod("check", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        elif not image.pulls:
            self._set(pod, waiting_status("ImagePullBackOff", "Back-off pulling image", container["image"]))
        elif image.waits is not None:
            self._set(pod, waiting_status(*image.waits, container["image"]))
        elif role == "check":
            self._check(pod, image)
        elif role == "worker":
            self._worker(pod)
        elif CLUSTER in labels_of(pod):
            self._session_master(pod)
        else:
            self._master(pod, image)

    def _starts(self, pod: Manifest) -> bool:
        """Return whether the container can start. If it cannot, its status names the missing input."""
        waiting = self.inputs.waiting(pod)
        if waiting is not None:
            self._set(pod, waiting)
        return waiting is None

    def _overdue(self, pod: Manifest) -> bool:
        seconds = pod["spec"].get("activeDeadlineSeconds")
        if seconds is None:
            return False
        born = parse_time(pod["metadata"]["creationTimestamp"])
        return born is not None and self.time - born >= timedelta(seconds=seconds)

    def _worker(self, pod: Manifest) -> None:
        running = pod["status"].get("phase") == "Running"
        if not running and self._running_workers() >= self.node_capacity:
            unschedulable = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient cpu"}
            self._set(pod, {"phase": "Pending", "conditions": [unschedulable]})
        elif running and (is_up(pod) or self.time < datetime.fromisoformat(pod["status"]["x-up-at"])):
            return
        elif self._starts(pod):
            self._set(pod, running_status(pod, ready=True))

    def _running_workers(self) -> int:
        workers = self.cluster.select("Pod", None, {ROLE: "worker"})
        return sum(p["status"].get("phase") == "Running" for p in workers)

    def _check(self, pod: Manifest, image: Image) -> None:
        if pod["status"].get("phase") == "Pending":
            if self._starts(pod):
                self._set(pod, running_status(pod, ready=True))
        elif pod["status"].get("phase") == "Running":
            if image.check_hangs:
                return
            report = image.check or {"ok": True, "problems": [], "graph": {}}
            if drops(pod, image):
                problem = {"code": "STATE", "message": f"state of uid {image.without!r} has no operator"}
                report = {"ok": False, "problems": [problem]}
            ok = report["ok"] and not image.check_crashes
            text = "Traceback: KeyError" if image.check_crashes else f"hello from the job\n{json.dumps(report)}\n"
            self.cluster.logs[pod["metadata"]["name"]] = text
            ended = {"terminated": {"exitCode": 0 if ok else 1, "reason": "Completed" if ok else "Error"}}
            own = {"name": MAIN_CONTAINER, "state": ended}
            if len(pod["spec"]["containers"]) > 1:
                beside = [{"name": c["name"], "state": {"running": {}}} for c in pod["spec"]["containers"][1:]]
                self._set(pod, {"phase": "Running", "containerStatuses": [*beside, own]})
                return
            self._set(pod, {"phase": "Succeeded" if ok else "Failed", "containerStatuses": [own]})

    def _master(self, pod: Manifest, image: Image) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self.jobs:
            self._leave_when_fenced(pod, self.jobs[uid])
            return
        if uid not in self.standby_parallelisms and not self._starts(pod):
            return
        restarts = pod["status"].get("x-restarts", 0)
        args = pod["spec"]["containers"][0]["args"]
        if (
            "--when-released" in args
            and image.supports_standby
            and args[args.index("--job-id") + 1] not in self.storage.released
        ):
            if uid not in self.standby_parallelisms:
                self.standby_parallelisms[uid] = self._parallelism(pod)
            self._check_on_standby(pod, image)
            return
        job = self._start_job(pod, image)
        knows_how = image.supports_standby or "--when-released" not in args
        outage = self.storage.lost or self.storage.unusable
        no_storage = bool(outage) and self.storage.crashes
        if no_storage or not image.starts or not knows_how or drops(pod, image) or not job.take_over():
            crashed = {"waiting": {"reason": "CrashLoopBackOff"}}
            ended = {"exitCode": 1, "reason": "Error", "message": "the master refuses to start"}
            if no_storage:
                ended |= {"exitCode": EXIT_STORAGE, "message": f"[STORAGE] {outage}"}
            last = {"terminated": {**ended, "finishedAt": format_time(self.time)}}
            statuses = [
                {
                    "name": MAIN_CONTAINER,
                    "image": pod["spec"]["containers"][0]["image"],
                    "restartCount": restarts + 1,
                    "state": crashed,
                    "lastState": last,
                }
            ]
            self._set(
                pod,
                {"phase": "Running", "podIP": "10.0.0.1", "x-restarts": restarts + 1, "containerStatuses": statuses},
            )
            return
        self.jobs[uid] = job
        self._set(pod, running_status(pod, ready=True))

    def _session_master(self, pod: Manifest) -> None:
        """Start a master without a job. It is ready at once, and a restarted one runs its stored programs again."""
        if not is_up(pod) and self._starts(pod):
            assert pod["spec"]["containers"][0]["args"] == ["session"]
            self._set(pod, running_status(pod, ready=True))

    def _check_on_standby(self, pod: Manifest, image: Image) -> None:
        """Let a master on standby check its program, if its environment requests it. The report is in the log one tick later."""
        name, status = pod["metadata"]["name"], running_status(pod, ready=False)
        requested = any(v["name"] == CHECK_VARIABLE for v in pod["spec"]["containers"][0]["env"])
        ran = pod["status"].get("phase") == "Running"
        if not requested or not ran:
            self._set(pod, status)
        elif not image.checks_itself:
            self.cluster.logs[name] = "the master waits for its release"
            status["containerStatuses"][0]["started"] = True
            self._set(pod, status)
        elif image.check_crashes:
            ended = {"exitCode": 1, "reason": "Error", "message": "the program ended the process that checks it"}
            own = {**status["containerStatuses"][0], "restartCount": 1, "lastState": {"terminated": ended}}
            self._set(pod, {**status, "containerStatuses": [own], "x-restarts": 1})
        else:
            report = image.check or {"ok": True, "problems": [], "graph": {}}
            reported = "" if image.check_hangs else f"hello from the job\n{CHECK_REPORTS}{json.dumps(report)}\n"
            self.cluster.logs[name] = f"{CHECK_BEGINS}\n{reported}"
            self._set(pod, status)

    def _leave_when_fenced(self, pod: Manifest, job: FakeJob) -> None:
        """Answer SUSPENDED for a minute and end. The container is restarted."""
        if job.suspended < FENCED_STAY or self.masters_hang or pod.get("x-lost"):
            return
        del self.jobs[pod["metadata"]["uid"]]
        restarts = pod["status"].get("x-restarts", 0) + 1
        ended = {"exitCode": 75, "reason": "Error", "message": job.failure, "finishedAt": format_time(self.time)}
        own = {
            "name": MAIN_CONTAINER,
            "restartCount": restarts,
            "state": {"running": {}},
            "lastState": {"terminated": ended},
        }
        self._set(pod, {"phase": "Running", "podIP": "10.0.0.1", "x-restarts": restarts, "containerStatuses": [own]})

    def _start_job(self, pod: Manifest, image: Image) -> FakeJob:
        args = pod["spec"]["containers"][0]["args"]
        restore = next((a for a in args if a in ("--fresh", "--restore-latest")), None)
        if "--when-released" in args:
            restore = self.storage.released.get(args[args.index("--job-id") + 1]) or "--fresh"
        name, keys = labels_of(pod)[JOB], self.inputs.configuration(pod)
        return FakeJob(
            autoscaler_mode=keys["penstock.autoscaler.mode"] if keys.get("job.autoscaler.enabled") else "disabled",
            world=cast("World", self),
            name=name,
            job_id=args[args.index("--job-id") + 1],
            image=image,
            restore=restore or args[args.index("--restore") + 1],
            wanted=self.standby_parallelisms.pop(pod["metadata"]["uid"], None) or self._parallelism(pod),  # type: ignore[arg-type]
        )

    def _parallelism(self, pod: Manifest) -> int:
        """Return the parallelism that the master reads when its container starts, from its command line or its `penstock.yaml`."""
        configuration = self.inputs.configuration(pod)
        if "--parallelism" not in pod["spec"]["containers"][0]["args"]:
            return int(configuration["parallelism.default"])
        assert "parallelism.default" not in configuration, "two truths"
        return int(self.inputs.variable(pod, "PENSTOCK_PARALLELISM"))

    def _master_alive(self, uid: str) -> bool:
        return uid in self.zombies or any(
            p["metadata"]["uid"] == uid for p in self.cluster.select("Pod", None, {ROLE: "master"})
        )

    def leading(self, name: str) -> FakeJob | None:
        """Return the job that answers at the REST Service."""
        service = self.cluster.one("Service", f"{name}-rest")
        for pod in self.cluster.select("Pod", None, service["spec"]["selector"] if service else {JOB: name}):
            job = self.jobs.get(pod["metadata"]["uid"])
            if job is not None and "deletionTimestamp" not in pod["metadata"] and not pod.get("x-lost"):
                return job
        return None

    def slots(self, name: str, job_id: str) -> int:
        return len(self.workers_up(name, job_id))

    def workers_up(self, name: str, job_id: str) -> list[str]:
        """Return the names of the workers that run."""
        if any(job.job_id == job_id for job in cast("World", self).live_session_jobs()):
            return cast("World", self).session_slots_of(job_id)
        pods = self.cluster.select("Pod", None, {JOB: name, ROLE: "worker", INCARNATION: job_id})
        return [p["metadata"]["name"] for p in pods if is_up(p) and "deletionTimestamp" not in p["metadata"]]

    def _watch_masters(self) -> None:
        """Detect two jobs of one FlinkJob that both process records, which is the worst possible failure."""
        active: dict[str, list[str]] = {}
        for uid, job in self.jobs.items():
            if job.state == "RUNNING" and self._master_alive(uid):
                active.setdefault(job.name, []).append(job.job_id)
        for job in cast("World", self).live_session_jobs():
            if job.state == "RUNNING":
                active.setdefault(job.name, []).append(job.job_id)
        self.two_masters += [f"{name}: {ids}" for name, ids in active.items() if len(ids) > 1]
