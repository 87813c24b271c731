"""The metrics of the cluster's JVMs. They are requested from all JVMs at once when a client reads metrics, at most once per second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.common.errors import PenstockError
from penstock.jobmanager.cluster.executor.jvm_readings import JvmReadings
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.job.job_master import JobMaster
from penstock.rest import facts

AskReadings = Callable[[str | None], str]
"""Function that returns the metrics of a TaskManager's JVM. If its argument is None, it returns the metrics of the
JobManager's JVM. An empty text means that no JVM runs, or that it does not respond.
"""
FRESH_S = 1.0
"""Time in seconds for which metrics are shared between requests."""
_AT_ONCE = 64


class Measurements:
    """Metrics of a cluster.

    Args:
        ask: see `AskReadings`. It may raise a `PenstockError`.
        task_managers: function that returns the registered TaskManagers.
        jobs: function that returns the jobs of this process. Ended jobs are ignored.
        more_jobs: function that returns the jobs of other processes.
    """

    def __init__(
        self,
        ask: AskReadings,
        task_managers: Callable[[], Sequence[Worker]],
        jobs: Callable[[], Sequence[JobMaster]],
        more_jobs: Callable[[], Sequence[facts.Job]] = list,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._task_managers = task_managers
        self._jobs, self._more_jobs = jobs, more_jobs
        self._clock = clock
        self._known = facts.Measurements()
        self._requested_at = -FRESH_S
        self._lock = threading.Lock()

    def take(self) -> facts.Measurements:
        """Return the metrics. JVMs that do not respond are left out."""
        with self._lock:
            if self._clock() - self._requested_at >= FRESH_S:
                self._known = self._request_readings()
                self._requested_at = self._clock()
            return self._known

    def _request_readings(self) -> facts.Measurements:
        try:
            ids = [worker.id for worker in self._task_managers()]
        except Exception:  # the cluster is shutting down during the request
            return facts.Measurements()
        of_job_manager = self._of(None)
        if len(ids) > 1:
            with ThreadPoolExecutor(min(_AT_ONCE, len(ids)), thread_name_prefix="readings") as pool:
                found = dict(zip(ids, pool.map(self._of, ids), strict=True))
        else:
            found = {tm_id: self._of(tm_id) for tm_id in ids}
        of_task_managers = {tm_id: readings.of_executor() for tm_id, readings in found.items() if readings.values}
        return facts.Measurements(
            of_job_manager.values, of_task_managers, self._of_subtasks([of_job_manager, *found.values()])
        )

    def _of(self, task_manager: str | None) -> JvmReadings:
        try:
            return JvmReadings.parse(self._ask(task_manager))
        except PenstockError:
            return JvmReadings()
        except Exception:  # the driver's JVM has just ended
            return JvmReadings()

    def _of_subtasks(self, readings: Sequence[JvmReadings]) -> Mapping[tuple[str, str, int], Mapping[str, float]]:
        """Return the metrics by subtask. All exchanges between two levels share their buffers, so all subtasks on one level of a slot have
        the same values.
        """
        stages = {job.id: [(v.level, v.id, v.parallelism) for v in job.vertices] for job in self._more_jobs()}
        stages |= {
            job.job_id: [(stage.level, str(stage.id), stage.parallelism) for stage in job.graph.stages]
            for job in self._jobs()
            if not job.is_done
        }
        found: dict[tuple[str, str, int], dict[str, float]] = {}
        for end in (end for one in readings for end in one.exchanges):
            for level, stage_id, parallelism in stages.get(end.job_id, ()):
                if level == end.level and end.slot < parallelism:
                    found.setdefault((end.job_id, stage_id, end.slot), {}).update(end.metrics())
        return found
