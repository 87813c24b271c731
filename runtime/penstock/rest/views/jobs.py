"""Lists of jobs, a job with its plan and its vertices, and applications, which are started programs with their jobs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.common.logs.redaction import without_secrets
from penstock.rest import facts, models
from penstock.rest.models import jars as shapes
from penstock.rest.views.ids import duration, first_start, last_end, vertex_id
from penstock.rest.views.insight import stacktrace
from penstock.rest.views.io import io_metrics
from penstock.rest.views.states import ENDED, JOB_STATES, lower_case_counts, state_counts, vertex_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.metrics.store import MetricStore

APPLICATION_STATES = ("CREATED", "RUNNING", "CANCELING", "FAILING", "FINISHED", "FAILED", "CANCELED")
"""Flink's states of an application."""


def job_ids(jobs: Iterable[facts.Job]) -> models.JobIds:
    return models.JobIds(jobs=[models.JobId(id=job.id, status=job.state) for job in jobs])


def jobs_overview(jobs: Iterable[facts.Job], now: int) -> models.JobsOverview:
    return models.JobsOverview(jobs=[job_summary(job, now) for job in jobs])


def job_summary(job: facts.Job, now: int) -> models.JobSummary:
    return models.JobSummary(
        jid=job.id,
        name=job.name,
        state=job.state,
        start_time=job.start,
        end_time=job.end,
        duration=duration(job.start, job.end, now),
        last_modification=max(job.timestamps.values(), default=job.start),
        tasks=lower_case_counts(_states(job)),
    )


def job_details(job: facts.Job, metrics: MetricStore, now: int) -> models.JobDetails:
    return models.JobDetails(
        jid=job.id,
        name=job.name,
        is_stoppable=job.state not in ENDED,
        state=job.state,
        job_type="BATCH" if job.is_batch else "STREAMING",
        start_step=job.start_step,
        end_step=job.end_step,
        start_time=job.start,
        end_time=job.end,
        duration=duration(job.start, job.end, now),
        max_parallelism=job.max_parallelism,
        now=now,
        timestamps={state: job.timestamps.get(state, 0) for state in JOB_STATES},
        vertices=[_job_vertex(job, vertex, metrics, now) for vertex in job.vertices],
        status_counts=state_counts(vertex_state(s.state for s in vertex.subtasks) for vertex in job.vertices),
        plan=plan(job),
    )


def _job_vertex(job: facts.Job, vertex: facts.Vertex, metrics: MetricStore, now: int) -> models.JobVertex:
    start, end = first_start(vertex.subtasks), last_end(vertex.subtasks)
    return models.JobVertex(
        id=vertex_id(vertex.id),
        name=vertex.name,
        max_parallelism=vertex.max_parallelism,
        parallelism=vertex.parallelism,
        status=vertex_state(s.state for s in vertex.subtasks),
        start_time=start,
        end_time=end,
        duration=duration(start, end, now),
        tasks=state_counts(s.state for s in vertex.subtasks),
        metrics=io_metrics(metrics, job.id, vertex.id),
    )


def plan(job: facts.Job) -> models.Plan:
    return models.Plan(
        jid=job.id,
        name=job.name,
        nodes=[
            models.PlanNode(
                id=vertex_id(vertex.id),
                parallelism=vertex.parallelism,
                description=vertex.name,
                inputs=[
                    models.PlanInput(num=num, id=vertex_id(edge.vertex_id), ship_strategy=edge.ship_strategy)
                    for num, edge in enumerate(vertex.inputs)
                ],
                operators=[models.PlanOperator(uid=uid, name=name) for uid, name in vertex.operators.items()],
            )
            for vertex in job.vertices
        ],
    )


def job_config(job: facts.Job) -> models.JobConfig:
    return models.JobConfig(
        jid=job.id,
        name=job.name,
        execution_config=models.ExecutionConfig(
            execution_mode="BATCH" if job.is_batch else "PIPELINED",
            restart_strategy=job.restart_strategy,
            job_parallelism=job.parallelism,
            user_config=without_secrets(job.configuration),
        ),
    )


def _states(job: facts.Job) -> list[str]:
    return [subtask.state for vertex in job.vertices for subtask in vertex.subtasks]


def application_summary(
    application: facts.Application, jobs: Sequence[facts.Job], now: int
) -> shapes.ApplicationSummary:
    return shapes.ApplicationSummary(
        id=application.id,
        name=application.name,
        start_time=application.start,
        end_time=application.end,
        duration=duration(application.start, application.end, now),
        status=application.state,
        jobs=Counter(job.state for job in jobs),
    )


def application_details(
    application: facts.Application, jobs: Sequence[facts.Job], now: int
) -> shapes.ApplicationDetails:
    timestamps = dict.fromkeys(APPLICATION_STATES, 0) | {"CREATED": application.start, "RUNNING": application.start}
    if application.end != facts.NOT_YET:
        timestamps[application.state] = application.end
    return shapes.ApplicationDetails(
        id=application.id,
        name=application.name,
        status=application.state,
        start_time=application.start,
        end_time=application.end,
        duration=duration(application.start, application.end, now),
        timestamps=timestamps,
        jobs=[job_summary(job, now) for job in jobs],
        exit_code=application.exit_code,
    )


def application_exceptions(application: facts.Application, jobs: Sequence[facts.Job]) -> shapes.ApplicationExceptions:
    found = [_exception(failure, job.id) for job in jobs for failure in job.failures]
    if application.failure is not None:
        found.append(_exception(application.failure, None))
    found.sort(key=lambda entry: -entry.timestamp)
    return shapes.ApplicationExceptions(exception_history=shapes.ApplicationExceptionHistory(entries=found))


def _exception(failure: facts.Failure, job_id: str | None) -> shapes.ApplicationException:
    return shapes.ApplicationException(
        exception_name=failure.name, stacktrace=stacktrace(failure), timestamp=failure.timestamp, job_id=job_id
    )
