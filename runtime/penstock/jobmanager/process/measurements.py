"""What is asked of the cluster's JVMs when metrics are read: of all at once, and not again within a second."""

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
"""The JVM of a TaskManager, or with None the JobManager's; empty: there is none, or it says nothing."""
FRESH_S = 1.0
"""Several pages that ask at once get the same."""
_AT_ONCE = 64


class Measurements:
    """
    Args:
        ask: see `AskReadings`; may raise a `PenstockError`.
        task_managers: those that are registered now.
        jobs: those that run, and others.
    """

    def __init__(
        self,
        ask: AskReadings,
        task_managers: Callable[[], Sequence[Worker]],
        jobs: Callable[[], Sequence[JobMaster]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._task_managers = task_managers
        self._jobs = jobs
        self._clock = clock
        self._known = facts.Measurements()
        self._asked_at = -FRESH_S
        self._lock = threading.Lock()

    def take(self) -> facts.Measurements:
        """Those who do not answer are not in it."""
        with self._lock:
            if self._clock() - self._asked_at >= FRESH_S:
                self._known = self._asked()
                self._asked_at = self._clock()
            return self._known

    def _asked(self) -> facts.Measurements:
        try:
            ids = [worker.id for worker in self._task_managers()]
        except Exception:  # the cluster is going down while somebody looks
            return facts.Measurements()
        own = self._of(None)
        if len(ids) > 1:
            with ThreadPoolExecutor(min(_AT_ONCE, len(ids)), thread_name_prefix="readings") as pool:
                found = dict(zip(ids, pool.map(self._of, ids), strict=True))
        else:
            found = {tm_id: self._of(tm_id) for tm_id in ids}
        of_task_managers = {tm_id: said.of_executor() for tm_id, said in found.items() if said.values}
        return facts.Measurements(own.values, of_task_managers, self._of_subtasks([own, *found.values()]))

    def _of(self, task_manager: str | None) -> JvmReadings:
        try:
            return JvmReadings.parse(self._ask(task_manager))
        except PenstockError:
            return JvmReadings()
        except Exception:  # the driver's JVM has just ended
            return JvmReadings()

    def _of_subtasks(self, said: Sequence[JvmReadings]) -> Mapping[tuple[str, str, int], Mapping[str, float]]:
        """All exchanges between two levels share their buffers, so all subtasks of a task have the same."""
        graphs = {job.job_id: job.graph for job in self._jobs() if not job.is_done}
        found: dict[tuple[str, str, int], dict[str, float]] = {}
        for end in (end for one in said for end in one.exchanges):
            graph = graphs.get(end.job_id)
            for stage in () if graph is None else graph.stages_on(end.level):
                if end.slot < stage.parallelism:
                    found.setdefault((end.job_id, str(stage.id), end.slot), {}).update(end.metrics())
        return found
