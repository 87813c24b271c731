"""Run every call of PyPI's `flink-rest-client` for a supported feature, against a server.

    flink_rest_client_calls.py WHEEL PORT job JOB_ID                    a server with this job
    flink_rest_client_calls.py WHEEL PORT session PROGRAM FOLDER TOKEN  a session cluster, which gets the program

It is a separate process, because the wheel includes a package `tests`. It prints the failed calls as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


class Calls:
    """The calls that failed, by name."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def __call__(
        self, name: str, work: Callable[[], Any], holds: Callable[[Any], bool] = lambda found: found is not None
    ) -> Any:
        """Make a call and return its response. It fails if it raises, or if `holds` is false of the response."""
        try:
            found = work()
            if not holds(found):
                self.failed[name] = f"answered {found!r}"
        except Exception:
            self.failed[name] = traceback.format_exc(limit=-2)
            return None
        return found


def call_cluster(client: Any, call: Calls, workers_count: int, slots: int) -> None:
    master, workers = client.jobmanager, client.taskmanagers
    call("overview", client.overview, lambda found: found["jobs-running"] == 1 and found["slots-total"] == slots)
    call("config", client.config, lambda found: "flink-version" in found)
    call("jobmanager.config", master.config, bool)
    call("jobmanager.logs", master.logs, lambda found: any(one["name"].endswith(".log") for one in found))
    call("jobmanager.metric_names", master.metric_names, bool)
    call("jobmanager.metrics", master.metrics, lambda found: found["numRunningJobs"] == "1")
    ids = call("taskmanagers.taskmanager_ids", workers.taskmanager_ids, lambda found: len(found) == workers_count)
    call("taskmanagers.all", workers.all, lambda found: len(found) == workers_count)
    call("taskmanagers.metric_names", workers.metric_names, bool)
    call("taskmanagers.metrics", workers.metrics, bool)
    call("taskmanagers.get", lambda: workers.get(ids[0]), lambda found: found["id"] == ids[0])
    call("taskmanagers.get_logs", lambda: workers.get_logs(ids[0]), bool)
    call("taskmanagers.get_metrics", lambda: workers.get_metrics(ids[0]), bool)
    call("taskmanagers.get_thread_dump", lambda: workers.get_thread_dump(ids[0]), bool)


def call_job(client: Any, job_id: str, call: Calls) -> None:
    jobs = client.jobs
    call("jobs.all", jobs.all, bool)
    call("jobs.job_ids", jobs.job_ids, lambda found: job_id in found)
    call("jobs.overview", jobs.overview, lambda found: {one["jid"] for one in found} >= {job_id})
    call("jobs.metric_names", jobs.metric_names, bool)
    call("jobs.metrics", jobs.metrics, bool)
    call("jobs.get", lambda: jobs.get(job_id), lambda found: found["jid"] == job_id)
    call("jobs.get_config", lambda: jobs.get_config(job_id), lambda found: found["jid"] == job_id)
    call("jobs.get_exceptions", lambda: jobs.get_exceptions(job_id))
    call("jobs.get_metrics", lambda: jobs.get_metrics(job_id), bool)
    call("jobs.get_plan", lambda: jobs.get_plan(job_id), bool)
    call("jobs.get_vertex_ids", lambda: jobs.get_vertex_ids(job_id), lambda found: len(found) == 2)
    call("jobs.get_accumulators", lambda: jobs.get_accumulators(job_id))
    call("jobs.get_checkpointing_configuration", lambda: jobs.get_checkpointing_configuration(job_id), bool)
    call("jobs.get_checkpoints", lambda: jobs.get_checkpoints(job_id), bool)
    checkpoints = call("jobs.get_checkpoint_ids", lambda: jobs.get_checkpoint_ids(job_id), bool)
    if checkpoints:
        call("jobs.get_checkpoint_details", lambda: jobs.get_checkpoint_details(job_id, checkpoints[0]), bool)


def call_vertex(client: Any, job_id: str, call: Calls) -> None:
    vertex = client.jobs.get_vertex(job_id, client.jobs.get_vertex_ids(job_id)[0])
    for name in ("details", "backpressure", "metric_names", "metrics", "subtasktimes", "taskmanagers", "watermarks"):
        call(f"vertex.{name}", getattr(vertex, name))
    subtasks = vertex.subtasks
    call("subtasks.subtask_ids", subtasks.subtask_ids, lambda found: found == [0, 1])
    call("subtasks.accumulators", subtasks.accumulators)
    call("subtasks.metric_names", subtasks.metric_names, bool)
    call("subtasks.metrics", subtasks.metrics, bool)
    call("subtasks.get", lambda: subtasks.get(0), lambda found: found["subtask"] == 0)
    call("subtasks.get_attempt", lambda: subtasks.get_attempt(0))
    call("subtasks.get_attempt_accumulators", lambda: subtasks.get_attempt_accumulators(0))


def stop_job(client: Any, job_id: str, call: Calls) -> None:
    jobs = client.jobs
    savepoint = call("jobs.create_savepoint", lambda: jobs.create_savepoint(job_id, "s3://b/savepoints"))
    if savepoint is not None:
        call(
            "… its status",
            lambda: savepoint.status,
            lambda found: found["status"]["id"] in ("IN_PROGRESS", "COMPLETED"),
        )
    rescaled = call("jobs.rescale", lambda: jobs.rescale(job_id, 4))
    if rescaled is not None:
        call("… its status", lambda: rescaled.status, lambda found: "id" in found["status"])
    call("jobs.stop", lambda: jobs.stop(job_id, "s3://b/savepoints"))
    call("jobs.get_execution_result", lambda: jobs.get_execution_result(job_id))


def call_session(client: Any, call: Calls, program: str, folder: str) -> None:
    """Make all calls on a session: upload the program, run it, change and stop its job, and delete the program."""
    jars, jobs = client.jars, client.jobs
    uploaded = call("jars.upload", lambda: jars.upload(program), lambda found: found["status"] == "success")
    jar = uploaded["filename"].rsplit("/", 1)[1]
    call("jars.all", jars.all, lambda found: [one["id"] for one in found["files"]] == [jar])
    call("jars.get_plan", lambda: jars.get_plan(jar), lambda found: len(found["nodes"]) == 2)
    job_id = call("jars.run", lambda: jars.run(jar, {"name": "counts"}, parallelism=2))
    call("jobs.get, running", lambda: until(lambda: jobs.get(job_id), "state", "RUNNING"), running)
    call("a checkpoint", lambda: until(lambda: {"has": bool(jobs.get_checkpoint_ids(job_id))}, "has", True), bool)
    overview = client.overview()
    call_cluster(client, call, overview["taskmanagers"], overview["slots-total"])
    call_job(client, job_id, call)
    call_vertex(client, job_id, call)
    call("rescale", lambda: outcome(jobs.rescale(job_id, 1)), succeeded)
    call("the new parallelism", lambda: until(lambda: widest(jobs, job_id), "parallelism", 1), bool)
    call("savepoint", lambda: outcome(jobs.create_savepoint(job_id, folder)), lambda found: "location" in found)
    stopped = call("stop", lambda: outcome(jobs.stop(job_id, folder)), lambda found: "location" in found)
    call("the end", lambda: until(lambda: jobs.get(job_id), "state", "FINISHED"), bool)
    call("jobs.get_execution_result", lambda: jobs.get_execution_result(job_id))
    restored = call(
        "jars.upload_and_run",
        lambda: jars.upload_and_run(
            program,
            {"name": "restored"},
            entry_class=program.rsplit("/", 1)[1],
            savepoint_path=stopped["location"],
            allow_non_restored_state=True,
        ),
    )
    call("jobs.terminate", lambda: jobs.terminate(restored))
    call("the end of the other", lambda: until(lambda: jobs.get(restored), "state", "CANCELED"), bool)
    call("jars.delete", lambda: until(lambda: {"is": deleted(jars, jar)}, "is", True), bool)
    call("jars.all, none", jars.all, lambda found: found["files"] == [])
    call("delete_cluster", client.delete_cluster)


def running(found: Any) -> bool:
    return bool(found["state"] == "RUNNING")


def succeeded(found: Any) -> bool:
    return "failure-cause" not in found


def widest(jobs: Any, job_id: str) -> dict[str, Any]:
    return {"parallelism": max(vertex["parallelism"] for vertex in jobs.get(job_id)["vertices"])}


def deleted(jars: Any, jar: str) -> bool:
    """Delete a program. The session refuses this until the program has ended."""
    from flink_rest_client.common import RestException  # type: ignore[import-not-found]

    try:
        return bool(jars.delete(jar))
    except RestException as error:
        if "(409)" not in str(error):
            raise
        return False


def outcome(trigger: Any) -> Any:
    """Wait for the end of an action, and return its result."""
    return until(lambda: trigger.status["status"] | trigger.status, "id", "COMPLETED").get("operation", {})


def until(ask: Callable[[], Any], name: str, value: object) -> Any:
    """Repeat a request until a field of its response has the value."""
    deadline = time.monotonic() + 60
    while (found := ask())[name] != value:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} is {found[name]!r}, not {value!r}")
        time.sleep(0.1)
    return found


def main(wheel: str, port: int, kind: str, *arguments: str) -> dict[str, str]:
    sys.path.insert(0, wheel)
    import requests
    from flink_rest_client import FlinkRestClient  # type: ignore[import-not-found]

    client, call = FlinkRestClient.get(host="localhost", port=port), Calls()
    if kind == "session":
        program, folder, token = arguments
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {token}"
        requests.request = session.request  # the client has no option for headers
        call_session(client, call, program, folder)
        return call.failed
    (job_id,) = arguments
    call_cluster(client, call, workers_count=2, slots=8)
    call_job(client, job_id, call)
    call_vertex(client, job_id, call)
    stop_job(client, job_id, call)
    return call.failed


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]), indent=1))
