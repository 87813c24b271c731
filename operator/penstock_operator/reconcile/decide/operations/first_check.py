"""The check of a first deployment by its own master.

A separate pod for the check would delay the first output by the start of a container and by the imports of the engine. A first
deployment has nothing to lose: no job runs, and no state exists. So the operator creates its pods before the check:

- Check: the pods start. The master checks its program in a separate process, and prints the report to its log. The
  master waits for its release, and neither reads nor writes state before.
- Start and Watch: the check has passed. The new incarnation becomes the running incarnation, and is then released
  (`prepare.release_standby`).

If the check refuses the program, the operation ends as after a separate check. Nothing runs then, so the operator
removes the pods (`upkeep`). If the master gives no result, the operator removes the pods and checks in a separate pod.
The reason is that the master has an older engine, or that the program has ended the process.

Masters that restore a snapshot are checked by a separate pod. So are all revisions after the first revision, and the
programs of FlinkClusters.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.actions import ApplyPods, ScaleDown
from penstock_operator.reconcile.decide.operations.start import is_deployed, new_incarnation, wait_for_former_pods
from penstock_operator.reconcile.decide.refusals import explain
from penstock_operator.resources.incarnation import worker_count

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.observation import CheckPod

CHECKING = "the master checks the new revision, and its pods start"
CHECK_TIMEOUT = timedelta(minutes=10)
"""Time that a check may take."""
LOOK_AGAIN = timedelta(seconds=1)
"""Pause between two looks at the log of a master. The job starts as soon as the operator has found the report."""
SOON_FOR = timedelta(minutes=1)
"""Time for which the operator uses the pause `LOOK_AGAIN`."""


def is_checked_by_master(ctx: Context, spec: FlinkJobSpec) -> bool:
    """Return whether the master of the new incarnation checks its own program.

    The release is a record in storage. So the operator must have read storage when it looked for the state of earlier FlinkJobs.
    """
    op = ctx.op
    fresh = op.restore is not None and op.restore.kind == "Fresh" and spec.cluster is None
    return op.kind == "Deploy" and fresh and op.looked_back and spec.upgrade.check and not op.checked_apart


def check_by_master(ctx: Context, spec: FlinkJobSpec) -> Decision | CheckPod:
    """Create the pods. Return the master's pod as soon as it has a report, or a problem that prevents the report."""
    op, desired = ctx.op, ctx.spec or spec
    if op.standby is None:
        job_id, parallelism = ctx.new_job_id(op.id), min(ctx.first_parallelism(desired), spec.job.max_parallelism)
        ctx = ctx.with_op(standby=job_id, job_id=job_id, target_parallelism=parallelism, step_since=ctx.now)
    former = wait_for_former_pods(ctx)
    if former is not None:
        return former
    if not is_deployed(ctx):
        return _create(ctx, spec, desired)
    pod, refusal = ctx.seen.check, ctx.seen.refusal
    if pod is None and refusal is not None and ctx.now - op.step_since >= ctx.settings.refusal_patience:
        return ctx.wait(str(refusal), blocked=refusal.reason)
    if pod is None:
        return ctx.wait(op.message if op.attempt else CHECKING, blocked=op.blocked if op.attempt else None)
    if pod.state == "NoResult":
        return _check_apart(ctx, pod)
    if pod.state in ("Waiting", "Running") and pod.trouble is None and not op.attempt and not _is_overdue(ctx, pod):
        return ctx.wait(CHECKING, after=LOOK_AGAIN if ctx.now - op.step_since < SOON_FOR else None)
    return pod


def _is_overdue(ctx: Context, pod: CheckPod) -> bool:
    since = ctx.op.step_since
    return pod.state == "Running" and ctx.now - max(since, pod.started or since) > CHECK_TIMEOUT


def _create(ctx: Context, spec: FlinkJobSpec, desired: FlinkJobSpec) -> Decision:
    failure = ctx.failed_action("ApplyPods")
    if failure is not None:
        return ctx.wait(explain(failure), blocked=failure.code, after=ctx.settings.backoff_first)
    incarnation = new_incarnation(ctx, spec)
    workers = worker_count(spec, desired, incarnation.parallelism)
    return ctx.act(ApplyPods(incarnation, desired, workers), CHECKING)


def _check_apart(ctx: Context, pod: CheckPod) -> Decision:
    text = f"the master gave no result of its check ({pod.output}). Its pods are removed, and a separate pod checks {ctx.op.target_revision}"
    ctx = ctx.with_event("CheckedApart", text)
    return ctx.with_op(standby=None, target_parallelism=None, checked_apart=True, message="").done()


def remove_pods(ctx: Context) -> Decision | None:
    """Remove the pods of a master that gave no result, before a separate pod checks. Return None if the Deployments
    request no pods.
    """
    if not ctx.op.checked_apart or ctx.seen.replicas == 0:
        return None
    failure = ctx.failed_action("ScaleDown")
    if failure is not None:
        return ctx.wait(explain(failure), blocked=failure.code, after=ctx.settings.backoff_first)
    return ctx.act(ScaleDown(), "removing the pods of the master that gave no result of its check")
