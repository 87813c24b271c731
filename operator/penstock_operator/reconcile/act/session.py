"""Execution of the actions on a job that a FlinkCluster runs. See `observe.session`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock_operator.api.cluster_ref import ClusterRef
from penstock_operator.api.flinkjob import rest_tls_secret
from penstock_operator.errors import ClusterMissing, EngineError, EngineUnreachable, ProgramRefused
from penstock_operator.kube.cluster import CONFIG_MAP, REVISION, SECRET
from penstock_operator.reconcile.act.actor import Actor
from penstock_operator.reconcile.cache import Submission
from penstock_operator.reconcile.observation import TERMINAL
from penstock_operator.reconcile.observe.secrets import Address, master_of, read_master_tls, read_secret
from penstock_operator.reconcile.observe.session import address_of, parsed_record, record_of_running
from penstock_operator.resources import submission
from penstock_operator.resources.named_secrets import ACCOUNT_TOKEN, secret_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.engine.client import EngineClient
    from penstock_operator.reconcile.decide import actions
    from penstock_operator.reconcile.observe.secrets import ServedMaster
    from penstock_operator.reconcile.observe.session import Record
    from penstock_operator.resources.incarnation import Incarnation

START_PATIENCE = 8.0
"""Time in seconds that a pass waits for the response to a start. A start that takes longer continues during later passes."""


class SessionActor(Actor):
    """Executor of the actions of a FlinkJob that a FlinkCluster runs."""

    async def try_objects(self, action: actions.TryObjects) -> None:
        """Check that the session exists. A failure does no harm while the old job runs."""
        await self._check_revision(action.incarnation)
        await self._objects.claim(submission.record(self._owner, action.incarnation, runs=True))

    async def apply_children(self, action: actions.ApplyChildren) -> None:
        """Write the record again."""
        await self._objects.apply(submission.record(self._owner, action.incarnation, runs=True))

    async def apply_pods(self, action: actions.ApplyPods) -> None:
        """Write the record, then start the program, unless the session already runs its job."""
        new = action.incarnation
        await self._check_revision(new)
        client = await self._session(new)
        known = self._cache.submission
        starts = known is not None and known.job_id == new.job_id and known.is_in_progress
        runs = not starts and await _state(client, new.job_id) not in (None, *TERMINAL)
        await self._objects.apply(submission.record(self._owner, new, runs=True))
        if runs:
            return
        if known is None or not starts:
            self._cache.submission = known = Submission(new.job_id, asyncio.create_task(self._start(client, new)))
        await asyncio.wait({known.task}, timeout=START_PATIENCE)
        if known.failure is not None:
            self._cache.submission = None
            raise known.failure

    async def _start(self, client: EngineClient, new: Incarnation) -> None:
        request = submission.fetch(self._owner, new.spec, await self._git_secret(new.spec))
        if request is None:
            program = await client.upload(*submission.bundle(self._owner, new.spec))
        else:
            program = await client.fetch(request)
        await client.run(program, submission.start(new))

    async def _git_secret(self, spec: FlinkJobSpec) -> Mapping[str, str]:
        """Return the user name and the password of the git server.

        Raises:
            ProgramRefused: the Secret does not exist, or has other keys.
        """
        git = spec.job.source.git if spec.job.source is not None else None
        if git is None or git.secret_name is None:
            return {}
        found = await self._ports.cluster.get(SECRET, self._owner.namespace, git.secret_name)
        content = secret_texts(found)
        if (found or {}).get("type") == ACCOUNT_TOKEN or not {"username", "password"} <= content.keys():
            msg = (
                f"Secret {git.secret_name} of job.source.git has no username and password. Create a Secret of the type "
                "kubernetes.io/basic-auth, and change job.restartNonce"
            )
            raise ProgramRefused(msg)
        return content

    async def scale_down(self, _: actions.ScaleDown) -> None:
        """Cancel the job if it still runs, then record that it should not run. The session then removes the program."""
        owner = self._owner
        live = await self._ports.cluster.get(CONFIG_MAP, owner.namespace, submission.record_name(owner))
        incarnation, stored = self._ctx.running_incarnation, parsed_record(self._ctx, live)
        known = stored or record_of_running(self._ctx)
        if known is not None and not await self._cancel(known):
            await self._await_start()
            await self._cancel(known)
        self._cache.submission = None
        if stored is not None:
            patch = {"data": {"runs": "false"}}
            await self._ports.cluster.merge(CONFIG_MAP, owner.namespace, submission.record_name(owner), patch)
        elif incarnation is not None:
            await self._objects.apply(submission.record(owner, incarnation, runs=False))

    async def _await_start(self) -> None:
        """Wait for the response to a start that is in progress. The session may not know the job before, so the program would run next to
        its successor.

        Raises:
            EngineUnreachable: the session has not responded yet.
        """
        known = self._cache.submission
        if known is not None and known.is_in_progress:
            await asyncio.wait({known.task}, timeout=START_PATIENCE)
            if known.is_in_progress:
                msg = "the session still starts the program, for example installs its packages. The operator cancels it afterwards"
                raise EngineUnreachable(msg)

    async def _cancel(self, record: Record) -> bool:
        """Cancel a job that runs or starts. Return False if the session does not know the job, or it has ended."""
        ref = ClusterRef.parse(record.cluster)
        if ref is None or await self._ports.cluster.get(REVISION, ref.namespace, ref.revision) is None:
            return False  # the session and its job no longer exist
        client = await self._client(address_of(self._ctx, record))
        if await _state(client, record.job_id) in (None, *TERMINAL):
            return False
        await client.cancel(record.job_id)
        return True

    async def scale_workers(self, action: actions.ScaleWorkers) -> None:
        """Do nothing, because the FlinkCluster has the workers."""

    async def apply_parallelism(self, action: actions.ApplyParallelism) -> None:
        """Do nothing, because the session has the parallelism of the running job."""

    async def force_delete(self, action: actions.ForceDelete) -> None:
        """Do nothing, because the job has no pods."""

    async def restart_master(self, action: actions.RestartMaster) -> None:
        """Refuse the request, because the session does not restart a job that another JobManager has taken over."""
        msg = "the session does not continue a job that another JobManager has taken over. Change job.restartNonce"
        raise EngineError(msg)

    async def _check_revision(self, new: Incarnation) -> None:
        ref = ClusterRef.parse(new.spec.cluster)
        if ref is None or await self._ports.cluster.get(REVISION, ref.namespace, ref.revision) is None:
            msg = f"FlinkCluster {new.spec.cluster} has no pods any more"
            raise ClusterMissing(msg)

    async def _session(self, new: Incarnation) -> EngineClient:
        return await self._client(Address(new.spec.cluster, rest_tls_secret(new.spec)))

    async def _client(self, address: ServedMaster) -> EngineClient:
        where = master_of(self._owner.namespace, self._owner.name, address)
        token = (await read_secret(self._ports, where.namespace, where.secrets)).get("rest-token")
        tls = await read_master_tls(self._ports, where.namespace, address)
        return self._ports.engines(where.namespace, where.name, token, tls)


async def _state(client: EngineClient, job_id: str) -> str | None:
    """Return the state of a job, or None if the session does not know it."""
    overview = await client.overview(job_id)
    if overview is not None:
        return overview.job.state
    return next((job.state for job in await client.jobs() if job.id == job_id), None)
