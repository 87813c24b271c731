"""The start of processes for the command line: a script on an embedded cluster, a master, a check. `worker_launch` starts a worker."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.common.config import options
from penstock.common.configuration import (
    Configuration,
    load_configuration,
)
from penstock.common.errors import (
    ClusterError,
    InvalidJob,
    PenstockError,
    SnapshotNotFound,
    StorageError,
    StorageRefused,
)
from penstock.common.job_id import JobID
from penstock.common.program.user_frames import user_place
from penstock.graph.executor import Executor
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor, LocalClusterProvider
from penstock.jobmanager.process.session.entry import GraphBuilt, GraphCollector, run_script_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from penstock.jobmanager.process.session.termination import Terminated, ending_on_sigterm

# A function imports the modules that only it needs, so that `penstock run` starts quickly.
if TYPE_CHECKING:
    from penstock.checkpoint.files.manifest import Manifest
    from penstock.jobmanager.job.job_master import JobMaster

CHECK_STORAGE_SECONDS = 20.0
"""Time in seconds for which a check retries writes to storage that does not respond."""


def run_script(
    *,
    script: str,
    args: Sequence[str],
    parallelism: int | None,
    savepoint_path: str | None,
    allow_non_restored_state: Sequence[str],
    configuration: Mapping[str, str],
    on_submitted: Callable[[str, str, str], None],
    is_detached: bool = False,
) -> None:
    """Run a program in this process as `__main__` on an embedded cluster, and return when it has ended.

    Args:
        is_detached: whether other commands observe the jobs. If so, REST is also served for jobs without Spark.

    Raises:
        SystemExit: the process received SIGTERM. The jobs have kept their checkpoints.
    """
    submit = SubmitOptions(restore_path=savepoint_path or "", allow_non_restored=list(allow_non_restored_state))
    executor = EmbeddedExecutor(submit, serves_in_process=is_detached)
    session = executor.session

    def started(master: JobMaster) -> None:
        # The options that the command line gives for a start apply only to the first job.
        session.submit_options = SubmitOptions()

    session.on_started = started
    session.on_accepted = lambda master: on_submitted(master.job_id, master.program.name, executor.rest_url)
    try:
        with ending_on_sigterm():
            run_script_on(executor, script, args, command_line(configuration, parallelism))
    except BaseException as error:
        sys.last_value = error  # Python sets it too; it prevents a second message
        if isinstance(error, Terminated):
            from penstock.jobmanager.process.master.master_process import suspend

            suspend(session)
        raise
    finally:
        executor.stop()


def run_dev(
    *,
    script: str,
    args: Sequence[str],
    parallelism: int | None,
    configuration: Mapping[str, str],
    show: Callable[[BaseException], None],
    say: Callable[[str], None],
) -> None:
    """Run a program in one process, again after each change of its files, until Ctrl-C."""

    def run(executor: Executor, settings: Mapping[str, str]) -> None:
        run_script_on(executor, script, args, settings)

    import penstock.jobmanager.process.session.gateway
    import penstock.rest.server  # noqa: F401  every run needs them, so import them once
    from penstock.jobmanager.process.dev.supervisor import DevProgram, develop

    develop(DevProgram(script, command_line(configuration, parallelism), run, show, say))


def command_line(configuration: Mapping[str, str], parallelism: int | None) -> dict[str, str]:
    """Return `-D` and `-p` as settings."""
    settings = dict(configuration)
    if parallelism is not None:
        settings[options.PARALLELISM.key] = str(parallelism)
    return settings


def run_cluster(*, entry: str, configuration: Mapping[str, str]) -> int | None:
    """Run as the process that has the cluster of a master, until its JobManager ends. Return the exit code.

    Return None if this process must run the JobManager itself.
    """
    settings = Configuration({**load_configuration().to_dict(), **configuration})
    if not settings.get(options.KEEP_EXECUTORS):
        return None
    from penstock.jobmanager.process.agreed import spark_secret
    from penstock.jobmanager.process.election.joining import is_elected
    from penstock.jobmanager.process.master.cluster_process import run_cluster_process
    from penstock.jobmanager.process.master.remote_cluster import CONNECTION

    if CONNECTION in os.environ:
        return None
    if is_elected(settings):
        raise ClusterError(
            f"{options.KEEP_EXECUTORS.key} and {options.HIGH_AVAILABILITY.key} exclude each other: the workers would stay with a "
            "master whose JobManager has ended. A standby with warm executors continues sooner than a JobManager that starts again",
            remedy=f"remove {options.KEEP_EXECUTORS.key} if you run standby masters",
        )
    spark_secret(settings)
    return run_cluster_process(settings, entry)


def run_master(
    *,
    entry: str,
    args: Sequence[str],
    restore: str | None,
    restore_latest: bool,
    fresh: bool,
    when_released: bool = False,
    allow_non_restored_state: Sequence[str],
    job_id: str | None,
    parallelism: int | None,
    configuration: Mapping[str, str],
    is_admitted: Callable[[], bool] = lambda: True,
) -> int:
    """Run as the JobManager of one job until it ends. Return the exit code (0 means finished or cancelled).

    Args:
        is_admitted: function that waits for the check of the program, and returns whether the program may run.
    """
    from penstock.jobmanager.process.agreed import spark_secret
    from penstock.jobmanager.process.election.joining import is_elected, job_id_of, join
    from penstock.jobmanager.process.master.master_cluster import MasterClusterProvider
    from penstock.jobmanager.process.master.master_process import run_master_process
    from penstock.jobmanager.process.master.remote_cluster import CONNECTION, RemoteClusterProvider

    settings = Configuration({**load_configuration().to_dict(), **configuration})
    spark_secret(settings)  # fail now, and not when the first job needs the cluster
    cluster: MasterClusterProvider | RemoteClusterProvider
    member = None
    if CONNECTION in os.environ:
        cluster = RemoteClusterProvider.connect()
        job_id = job_id or cluster.job_id()
    else:
        cluster = MasterClusterProvider(settings)
        job_id = job_id or job_id_of(settings)
        if is_elected(settings):
            member = join(settings, job_id, cluster.host)
            cluster.take_part_in(member, settings)
    submit = SubmitOptions(
        job_id=job_id or JobID.generate().digits,
        restore_path=restore or "",
        fresh=fresh,
        awaits_release=when_released,
        allow_non_restored=list(allow_non_restored_state),
        keep_result=True,
    )

    def program(session: Session) -> None:
        run_script_on(session, entry, args, command_line(configuration, parallelism))

    begin = partial(cluster.begin, entry)
    return run_master_process(cluster, submit, settings, program, begin=begin, is_admitted=is_admitted, member=member)


def is_released(*, job_id: str, configuration: Mapping[str, str]) -> bool:
    """Return whether a job that waits for its release was released.

    Raises:
        StorageError, StorageRefused: storage cannot be read.
    """
    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.leadership.release import read_release
    from penstock.checkpoint.store.retrying_store import RetryPolicy
    from penstock.jobmanager.job.settings import object_store_options

    settings = Configuration({**load_configuration().to_dict(), **configuration})
    folder = settings.get(options.CHECKPOINT_DIRECTORY)
    if folder is None:
        return False
    policy = RetryPolicy(retry_for=CHECK_STORAGE_SECONDS)
    storage = CheckpointStorage(folder, job_id, object_store_options(settings), policy=policy)
    return read_release(storage) is not None


def fork_check(check: Callable[[], bool]) -> Callable[[], bool]:
    """Run the check in a forked process. See `first_check.fork_check`. The processes share the modules, which are imported before."""
    import penstock.jobmanager.process.master.master_cluster
    import penstock.jobmanager.process.master.master_process  # noqa: F401
    from penstock.jobmanager.process.master import first_check

    return first_check.fork_check(check)


def run_session(*, configuration: Mapping[str, str], local: bool) -> int:
    """Run as a session cluster until the process receives a stop signal. Return the exit code."""
    from penstock.jobmanager.process.agreed import spark_secret
    from penstock.jobmanager.process.election.joining import is_elected, join
    from penstock.jobmanager.process.master.master_cluster import MasterClusterProvider
    from penstock.jobmanager.process.master.session_cluster import check_elected, run_session_cluster, with_checkpoints

    settings = with_checkpoints(Configuration({**load_configuration().to_dict(), **configuration}))
    if local:
        return run_session_cluster(LocalClusterProvider(), settings)
    spark_secret(settings)
    cluster = MasterClusterProvider(settings)
    member = None
    if is_elected(settings):
        check_elected(settings)
        member = join(settings, settings.get(options.CLUSTER_ID) or "session", cluster.host)
        cluster.take_part_in(member, settings)
    cluster.begin()
    return run_session_cluster(cluster, settings, member=member)


def check(
    *,
    entry: str,
    args: Sequence[str],
    parallelism: int | None,
    against: str | None,
    configuration: Mapping[str, str],
    allow_non_restored_state: Sequence[str] = (),
) -> Mapping[str, Any]:
    """Check a job: write to its storage, build the program's graph without running it, and compare it with a snapshot if one is given.

    The storage check is first. A program may access the storage with the same keys while it builds the graph, and would then fail with a
    less helpful message.
    """
    from penstock.jobmanager.job.settings import object_store_options

    beside = _Comparison()
    stores: Mapping[str, Any] = {}
    collector = GraphCollector(lambda: _plans_in(against, stores))
    try:
        settings = Configuration({**load_configuration().to_dict(), **configuration})
        stores = object_store_options(settings)
        problem = _check_storage(settings, stores)
        if problem is None:
            run_script_on(collector, entry, args, command_line(configuration, parallelism))
            raise InvalidJob(f"{entry} never calls execute()", remedy="end the program with env.execute(...)")
    except GraphBuilt:
        problem = _check_against(collector, against, allow_non_restored_state, stores, beside)
    except PenstockError as error:
        problem = _problem(error)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        problem = {"code": "USER_CODE", "message": message, "remedy": "", "operator": "", "location": user_place(error)}
    return {
        "ok": problem is None,
        "problems": [] if problem is None else [problem],
        "warnings": _memory_warnings(collector, beside.state_bytes),
        "not_looked_at": beside.unseen,
        "state_changes": beside.changes,
        "graph": None if collector.graph is None else collector.graph.to_json(),
    }


@dataclass
class _Comparison:
    """Additional results of the comparison of a snapshot with the graph."""

    unseen: list[dict[str, str]] = field(default_factory=list)
    """Locations that may declare states and were not checked."""
    state_bytes: int = 0
    """Size of the snapshot's state, in bytes."""
    changes: list[dict[str, str]] = field(default_factory=list)
    """Changes that a restore makes for operators that can use their state."""


def _plans_in(against: str | None, stores: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the SQL plans of the snapshot. An unreadable snapshot is reported after the program has run."""
    if against is not None:
        with suppress(PenstockError):
            return _manifest(against, stores).plans
    return {}


def _check_against(
    collector: GraphCollector,
    against: str | None,
    allowed: Sequence[str],
    stores: Mapping[str, Any],
    beside: _Comparison,
) -> dict[str, str] | None:
    """Return the reason why the snapshot cannot be restored into the graph, or None if none was found. Add other results to `beside`."""
    from penstock.checkpoint.recovery.restore import plan_restore
    from penstock.jobmanager.job.checkpoints import operator_infos
    from penstock.jobmanager.validation.declared_state import check_stored_states, unseen_states
    from penstock.jobmanager.validation.plan_nodes import compare_plans
    from penstock.jobmanager.validation.runtime_mode import check_runtime_mode
    from penstock.jobmanager.validation.state_meaning import check_state_meaning

    graph = collector.graph
    if graph is None or against is None:
        return None
    try:
        manifest = _manifest(against, stores)
        beside.state_bytes = manifest.state_bytes
        nodes = compare_plans(manifest, graph, collector.plans)
        beside.changes += [{"operator": change.operator, "message": change.message} for change in nodes]
        plan_restore(manifest, operator_infos(graph), list(allowed))
        check_runtime_mode(graph, manifest)
        beside.changes += [
            {"operator": change.operator, "message": change.message} for change in check_state_meaning(graph, manifest)
        ]
        check_stored_states(graph, manifest)
        beside.unseen += unseen_states(graph, manifest)
    except PenstockError as error:
        return _problem(error)
    return None


def _check_storage(settings: Configuration, stores: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the reason why the checkpoint or savepoint directory is not writable, or None if it is writable or not configured."""
    from penstock.checkpoint.store.object_store import join_url, normalize_url
    from penstock.checkpoint.store.retrying_store import RetryPolicy, Stores

    for option in (options.CHECKPOINT_DIRECTORY, options.SAVEPOINT_DIRECTORY):
        folder = settings.get(option)
        if folder is None:
            continue
        try:
            url = join_url(normalize_url(folder), f".check-{uuid.uuid4().hex}")
            store = Stores(stores, RetryPolicy(retry_for=CHECK_STORAGE_SECONDS)).for_url(url)
            store.put(url, b"penstock check")
            store.delete(url)
        except PenstockError as error:
            problem = _problem(error)
            return {**problem, "message": f"{option.key} = {folder} cannot be written: {problem['message']}"}
    return None


def _manifest(against: str, stores: Mapping[str, Any]) -> Manifest:
    """Return the manifest. If newer checkpoints of a running job have replaced the given checkpoint, return the newest manifest."""
    from penstock.checkpoint.files.layout import parse_checkpoint_folder
    from penstock.checkpoint.savepoint.snapshots import newest_complete, resolve

    try:
        return resolve(against, stores, check_files=False).manifest
    except SnapshotNotFound:
        folder, _, name = against.rstrip("/").rpartition("/")
        root, _, job_id = folder.rpartition("/")
        if parse_checkpoint_folder(name) is None:
            raise
        newest = newest_complete(root, job_id, stores).snapshot
        if newest is None:
            raise
        return newest.manifest


def _problem(error: PenstockError) -> dict[str, str]:
    # Reports have one code for unusable storage. It covers a refusal and a missing response.
    code = StorageError.code if isinstance(error, StorageRefused) else error.code
    location = error.location or user_place(error)
    return {
        "code": code,
        "message": error.message,
        "remedy": error.remedy,
        "operator": error.operator,
        "location": location,
    }


def _memory_warnings(collector: GraphCollector, state_bytes: int) -> list[dict[str, str]]:
    """Return warnings for containers whose memory limit this job would exceed. The limits are known if the operator has written them to the
    settings.
    """
    from penstock.common.config.memory import shortages

    graph = collector.graph
    found = [] if graph is None else shortages(collector.settings, graph.levels, state_bytes // graph.slots)
    return [{"code": "MEMORY_TIGHT", "message": short.message, "remedy": short.remedy} for short in found]
