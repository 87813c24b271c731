"""Threads that call the reporters, one for each reporter, while the JobManager's process has jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.configuration import Configuration
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.reporting.log_tails import LogTails
from penstock.jobmanager.reporting.registry import Chosen, log_reporters, metric_reporters, trace_reporters
from penstock.jobmanager.reporting.spans import JobSpans
from penstock.metrics.reporter import LogEntry, LogReporter, MetricReporter, Span, TraceReporter
from penstock.metrics.store import ScopeReadings

MAX_WAITING = 1000
"""Maximum number of spans that are kept for the next report after a failure."""
MAX_ENTRIES = 10_000
"""Maximum number of log records that are kept for the next report after a failure."""
AT_ONCE = 1000
"""Maximum number of log records in one report."""
PATIENCE_S = 5.0
"""Timeout in seconds for the last reports of all reporters at the end."""

logger = logging.getLogger(__name__)


class Reporting:
    """Reporters, which start with the creation of the object.

    Args:
        collect: function that returns the current metrics.
        jobs: function that returns the running and recently ended jobs.
        tails: function that creates a follower of the logs for each reporter of logs.

    Raises:
        InvalidJob: a reporter cannot be opened.
    """

    def __init__(
        self,
        conf: Configuration,
        collect: Callable[[], Sequence[ScopeReadings]],
        jobs: Callable[[], Sequence[JobMaster]],
        tails: Callable[[], LogTails],
    ) -> None:
        self._collect = collect
        self._jobs = jobs
        self._tails = tails
        self._ended = threading.Event()
        metrics, traces, logs = metric_reporters(conf), trace_reporters(conf), log_reporters(conf)
        self._threads = [self._thread(self._report_metrics, chosen) for chosen in metrics]
        self._threads += [self._thread(self._report_traces, chosen) for chosen in traces]
        self._threads += [self._thread(self._report_logs, chosen) for chosen in logs]

    def close(self) -> None:
        """Let each reporter send a last report and stop. Wait at most `PATIENCE_S` for all of them."""
        self._ended.set()
        until = time.monotonic() + PATIENCE_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _thread(self, run: Callable[[Any], None], chosen: Chosen[Any]) -> threading.Thread:
        thread = threading.Thread(target=run, args=(chosen,), name=f"reporter-{chosen.name}", daemon=True)
        thread.start()
        return thread

    def _report_metrics(self, chosen: Chosen[MetricReporter]) -> None:
        self._report_once(chosen, lambda: chosen.reporter.report(self._collect()))

    def _report_traces(self, chosen: Chosen[TraceReporter]) -> None:
        known: dict[str, JobSpans] = {}
        waiting: list[Span] = []

        def report() -> None:
            jobs = {job.job_id: job for job in self._jobs()}
            for job_id in set(known) - set(jobs):
                del known[job_id]
            for job_id, job in jobs.items():
                waiting.extend(known.setdefault(job_id, JobSpans(job)).new())
            if waiting:
                del waiting[:-MAX_WAITING]
                chosen.reporter.report(tuple(waiting))
                waiting.clear()

        self._report_once(chosen, report)

    def _report_logs(self, chosen: Chosen[LogReporter]) -> None:
        tails = self._tails()
        waiting: list[LogEntry] = []

        def report() -> None:
            waiting.extend(tails.new(last=self._ended.is_set()))
            del waiting[:-MAX_ENTRIES]
            while waiting:
                chosen.reporter.report(tuple(waiting[:AT_ONCE]))
                del waiting[:AT_ONCE]

        self._report_once(chosen, report)

    def _report_once(self, chosen: Chosen[Any], report: Callable[[], None]) -> None:
        """Report once. A repeated failure is logged only when it begins and when it ends."""
        fails = False
        last = False
        while not last:
            last = self._ended.wait(chosen.interval_s)
            try:
                report()
            except Exception:
                if not fails:
                    logger.warning("reporter %s cannot report; it retries", chosen.name, exc_info=True)
                fails = True
            else:
                if fails:
                    logger.info("reporter %s reports again", chosen.name)
                fails = False
        try:
            chosen.reporter.close()
        except Exception:
            logger.warning("reporter %s cannot be closed", chosen.name, exc_info=True)
