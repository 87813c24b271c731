"""The process of a deployed TaskManager (`penstock worker`): it runs an executor as long as its master runs.

A thread resolves the master's address and registers (`master_search`). The process then starts the executor that the master requests
(`master_link`). The connection lasts as long as the master. When the connection ends, the process stops the executor, because the next master
cannot use it. The process then starts over. If an executor ends by itself, the process reports this and starts the next executor. The process
does not accept a server without the cluster's secret as its master.

**Several masters.** If masters elect a leader, the process is also connected to a master on standby, and may run an idle executor for it
(`warm_executor`). It follows the leader with the highest term. When another master leads, it first ends the executor of the previous leader.
Only then the next leader may use the slots.
"""

from __future__ import annotations

import logging
import select
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress

from penstock.common.system.open_files import raise_limit
from penstock.jobmanager.cluster.executor.executor_process import Launch
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.members.registration import Killed, Leads, OnStandby, Register, Start, ToTaskManager
from penstock.jobmanager.process.worker.master_link import Child, MasterLink
from penstock.jobmanager.process.worker.master_search import MasterSearch
from penstock.jobmanager.process.worker.warm_executor import WarmExecutorPolicy

POLL_S = 0.25
"""Interval in seconds of connection attempts to a master that does not listen."""
STANDBY_POLL_S = 2.0
"""Interval in seconds of connection attempts to a standby, while the worker has a leader."""
WATCH_S = 0.5
STUCK_S = 60.0
"""Time in seconds that is longer than any wait of the loop."""

logger = logging.getLogger(__name__)


class WorkerProcess:
    """TaskManager that runs executors one after the other.

    Args:
        master: `host:port`, or several, separated by commas. Hosts are resolved again each time.
        secret: secret of the cluster.
        slots: number of slots of each executor.
        heap: heap of each executor, in bytes.
        start: function that starts an executor. Its argument is the address at which other processes reach the executor.
        ended: function that is called when the executor and its Python workers have ended.
        linger_s: time in seconds for an executor to end before it is killed.
        kills: counter of out-of-memory kills in this container. None means to create one.
        logs: logs that the master may request.
        stacks: directory in which Python workers report their stacks. Empty means no reports.
        warm: decision about an executor for a standby. None means that the worker never has one.
    """

    def __init__(
        self,
        master: str,
        secret: str,
        slots: int,
        heap: int,
        start: Callable[[Launch, str], Child],
        ended: Callable[[Launch], object] = lambda launch: None,
        linger_s: float = 5.0,
        kills: MemoryKills | None = None,
        logs: LogFiles | None = None,
        stacks: str = "",
        warm: WarmExecutorPolicy | None = None,
    ) -> None:
        self._start = start
        self._ended = ended
        self._linger_s = linger_s
        self._kills = kills or MemoryKills()
        self._logs = logs or LogFiles()
        self._stacks = stacks
        self._warm = warm or WarmExecutorPolicy("false", lambda: (0, 0))
        self._ending = False
        self._turned_at = time.monotonic()
        self._links: list[MasterLink] = []
        self._leader: MasterLink | None = None
        """The master that this worker follows. It is one of the links."""
        self._search_from = 0.0
        """Time before which the worker does not look for a leader."""
        worker_id = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self._wake_up, self._woken = socket.socketpair()
        self._search = MasterSearch(
            [address.strip() for address in master.removeprefix("spark://").split(",")],
            secret,
            lambda own, known: Register(worker_id, own, slots, heap, known),
            self._wake,
        )

    @property
    def is_alive(self) -> bool:
        """Return whether the loop runs. Each of its waits is shorter than `STUCK_S`."""
        return time.monotonic() - self._turned_at < STUCK_S

    @property
    def is_ready(self) -> bool:
        """Return whether an executor runs that is registered with the leader's driver."""
        leader = self._leader
        return leader is not None and leader.running_since is not None

    def end(self, *_: object) -> None:
        """Make `run` return. This method can be used as a signal handler."""
        self._ending = True

    def run(self) -> int:
        """Run until `end` is called, and return 0. If no executor can run although the master runs, return the last exit code, at least 1."""
        raise_limit()
        self._search.start()
        try:
            while not self._ending:
                elapsed_s = self._wait()
                code = self._turn(elapsed_s)
                if code is not None:
                    return code
            return 0
        finally:
            self._search.stop()
            for link in list(self._links):  # a warm executor has no tasks that must end
                self._drop(link, self._linger_s if link is self._leader else 0.0)
            self._wake_up.close()
            self._woken.close()

    def _wake(self) -> None:
        with suppress(OSError):  # the process ends
            self._wake_up.send(b"\0")

    def _wait(self) -> float:
        """Wait for a message or a new connection. Return the time since the last call in seconds."""
        self._set_search()
        descriptors = [self._woken.fileno(), *(link.connection.fileno() for link in self._links)]
        readable, _, _ = select.select(descriptors, (), (), WATCH_S)
        if descriptors[0] in readable:
            self._woken.recv(4096)
        before, self._turned_at = self._turned_at, time.monotonic()
        return min(self._turned_at - before, 2 * WATCH_S)  # if this process was paused, messages may be waiting

    def _turn(self, elapsed_s: float) -> int | None:
        """Handle everything that has happened. Return an exit code if no executor can run."""
        if (found := self._search.take()) is not None:
            self._links.append(
                MasterLink(
                    found.connection,
                    found.address,
                    found.own_address,
                    self._start,
                    self._ended,
                    self._logs,
                    self._stacks,
                    found.known,
                )
            )
        kills = self._kills.new()
        for link in list(self._links):
            if link not in self._links:  # another link's message has ended this one
                continue
            try:
                code = self._serve(link, elapsed_s, kills)
            except OSError:
                self._lose(link)
                continue
            if code is not None:
                return code
        self._choose_leader()
        self._keep_warm()
        return None

    def _serve(self, link: MasterLink, elapsed_s: float, kills: int) -> int | None:
        """Serve a master. Return an exit code if no executor can run.

        Raises:
            OSError: the master is lost.
        """
        for message in link.receive():
            self._handle(link, message)
            if link not in self._links:
                return None
        if not link.beat(elapsed_s):
            logger.warning("the master at %s does not respond, although its connection is open", link.address)
            raise ConnectionError
        if kills and link.has_executor:  # report the kill before the end of the executor, which the kill causes
            link.send(Killed(self._kills.limit))
        code = link.exit_code()
        if code is None:
            return None
        link.count_end()
        if link.is_hopeless:
            return self._give_up(link, code)
        link.report_end(code, self._linger_s)
        return None

    def _give_up(self, link: MasterLink, code: int) -> int | None:
        """Return the exit code of this process. Without a warm executor, it can continue."""
        if link is self._leader:
            return code if code > 0 else 1
        logger.warning("no warm executor can run (%d). Only a change of the leader takes longer without it", code)
        self._warm.pause()
        self._drop(link, 0.0)
        return None

    def _handle(self, link: MasterLink, message: ToTaskManager) -> None:
        is_first = link.awaits_role
        if isinstance(message, Start):
            if is_first:
                logger.info("the master listens at %s", link.address)
            reason = link.start(message, self._linger_s)
            if reason:
                logger.error("%s", reason)
                time.sleep(POLL_S)
            self._choose_leader()
            return
        link.handle(message)
        if isinstance(message, Leads | OnStandby):
            others = [other.master for other in self._links if other is not link]
            if link.is_ignored or link.master in others:
                self._drop(link, 0.0)  # the address of this connection leads to the same master as another one
                return
            if is_first:
                logger.info("a master %s at %s", "leads" if link.term is not None else "is on standby", link.address)
            self._choose_leader()

    # --- the leader ---------------------------------------------------------------------------------------------

    def _choose_leader(self) -> None:
        """Follow the leader with the highest term. End the executor of the previous leader first."""
        leading = [link for link in self._links if link.term is not None]
        newest = max(leading, key=lambda link: link.term or 0, default=None)
        if newest is None or newest is self._leader:
            return
        before = self._leader
        if before is not None and (before.term or 0) >= (newest.term or 0):
            return
        if before is not None:
            logger.info("the master at %s leads now", newest.address)
            self._drop(before, 0.0)
        self._leader = newest
        try:
            newest.follow()
        except OSError:
            self._lose(newest)

    def _lose(self, link: MasterLink) -> None:
        """Handle the end of a connection. No task of a lost master is used again, and the next master waits for the executor's memory and
        ports.
        """
        is_leader, was_of_use = link is self._leader, link.running_since is not None
        logger.info("the connection to the master at %s ended", link.address)
        self._drop(link, 0.0)
        if is_leader and not was_of_use:
            self._search_from = time.monotonic() + POLL_S

    def _drop(self, link: MasterLink, linger_s: float) -> None:
        self._links.remove(link)
        if link is self._leader:
            self._leader = None
        link.close(linger_s)

    def _set_search(self) -> None:
        """Look for a leader, and less often for a standby."""
        leader = self._leader
        pause_s: float | None
        if any(link.awaits_role for link in self._links) or time.monotonic() < self._search_from:
            pause_s = None  # a connected master may be the one that is missing
        elif leader is None:
            pause_s = POLL_S
        elif leader.is_elected and not any(link.is_standby for link in self._links):
            pause_s = STANDBY_POLL_S
        else:
            pause_s = None
        known = tuple(link.master for link in self._links if link.is_elected)
        self._search.want(pause_s, {link.address for link in self._links}, known)

    # --- the warm executor --------------------------------------------------------------------------------------

    def _keep_warm(self) -> None:
        """Ask one standby for an executor, or end this executor if memory is scarce."""
        leader = self._leader
        warm = next((link for link in self._links if link is not leader and link.has_warm_request), None)
        if warm is not None:
            if leader is not None and warm.has_executor and self._warm.must_end():
                logger.warning("memory is scarce, so the warm executor ends")
                self._warm.pause()
                self._drop(warm, 0.0)
            return
        standby = next((link for link in self._links if link.is_standby), None)
        if standby is not None and leader is not None and self._warm.may_start(leader.running_since):
            with suppress(OSError):  # the next turn handles the end of the connection
                standby.request_warm()
