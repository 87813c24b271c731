"""This process as a member of an election: a thread that takes part until the process leads, loses, or ends."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from penstock.common.errors import PenstockError, StorageError
from penstock.jobmanager.process.election.claims import Claims, Holder
from penstock.jobmanager.process.election.elector import ElectionTimes, Elector, Role
from penstock.jobmanager.process.election.leader_link import LeaderLink, LinkWatcher

EXIT_LOST = 75
"""EX_TEMPFAIL of sysexits.h: restart this process if it is still needed, as a standby. The Kubernetes operator knows this exit code."""

logger = logging.getLogger(__name__)


def end_process(reason: str) -> None:
    """End this process at once, because another process leads. The jobs must not continue here."""
    logger.critical("this process has lost the leadership and ends: %s", reason)
    logging.shutdown()
    os._exit(EXIT_LOST)


class Member:
    """A process in an election. The methods may be called from any thread.

    Args:
        claims: place of the claims.
        id: unique id of this process.
        host: address at which other members reach this process.
        on_loss: function that is called when this process has lost the leadership. It must end the process.
    """

    def __init__(
        self,
        claims: Claims,
        id: str,
        host: str,
        times: ElectionTimes,
        *,
        on_loss: Callable[[str], object] = end_process,
    ) -> None:
        self._claims, self._id, self.host, self._times = claims, id, host, times
        self.on_lead: Callable[[], object] = lambda: None
        """Function that is called once, in the thread of the election, when this process begins to lead."""
        self._on_loss = on_loss
        self._elector: Elector | None = None
        self._link: LeaderLink | None = None
        self._watcher: LinkWatcher | None = None
        self._wake = threading.Event()
        self._leads = threading.Event()
        self._serves = threading.Event()
        self._heartbeats = threading.Condition()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    @property
    def short_id(self) -> str:
        """Return an id of this process with few characters. A worker's first frame has the ids of several masters."""
        return hashlib.sha256(self._id.encode()).hexdigest()[:16]

    @property
    def term(self) -> int:
        """Return the term in which this process leads, or which it has seen last."""
        leader = self.leader
        return 0 if leader is None else leader.term

    @property
    def leads(self) -> bool:
        """Return whether this process leads."""
        return self._leads.is_set()

    @property
    def leader(self) -> Holder | None:
        """Return the leader that this process has seen last, or None if none is known."""
        return None if self._elector is None else self._elector.leader

    def leader_url(self) -> str | None:
        """Return the URL of the leader's REST API, or an empty string if none serves requests. None means that this process serves them."""
        if self.leads:
            return None if self._serves.is_set() else ""
        leader = self.leader
        return "" if leader is None or leader.released else leader.rest

    def start(self, rest: str = "") -> Member:
        """Take part in the election.

        Args:
            rest: URL at which other members reach the REST API of this process.
        """
        self._link = LeaderLink(self.host)
        me = Holder(self._id, rest=rest, link=self._link.address)
        self._elector = Elector(self._claims, me, self._times, time.monotonic)
        self._watcher = LinkWatcher(self._other, self._on_death).start()
        self._thread.start()
        return self

    def wait(self, timeout_s: float) -> bool:
        """Wait until this process leads. Return whether it leads."""
        return self._leads.wait(timeout_s)

    def confirm(self, timeout_s: float, since_s: float | None = None) -> bool:
        """Check that this process still leads, with a heartbeat. A process that was frozen may not know that another one leads.

        Args:
            since_s: start of the heartbeat at the earliest, on the monotonic clock. None means within the last half of the lease.

        Returns:
            Whether a heartbeat has confirmed it within the timeout. If the leadership is lost, `on_loss` ends the process.
        """
        elector = self._elector
        if elector is None:
            return False
        earliest = time.monotonic() - self._times.lease_s / 2 if since_s is None else since_s
        if elector.renewed_at < earliest:
            self._wake.set()
        with self._heartbeats:
            return self._heartbeats.wait_for(lambda: self.leads and elector.renewed_at >= earliest, timeout_s)

    def serve(self) -> None:
        """Record that this process leads and can answer requests, because it knows the requests to the previous leader."""
        self._serves.set()

    def leave(self) -> None:
        """Give up the leadership, because the process ends. Call it after the jobs have stopped."""
        self._ending.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self._times.lease_s)
        if self._watcher is not None:
            self._watcher.stop()
        if self._link is not None:
            self._link.close()

    def _run(self) -> None:
        """Take part until the process ends. An unexpected failure ends the process, because it would lead without heartbeats."""
        assert self._elector is not None
        reason = ""
        try:
            reason = self._take_part(self._elector)
        except Exception as error:
            logger.exception("the election has failed in this process")
            reason = f"{type(error).__name__}: {error}"
        with suppress(Exception):  # the lease ends anyway
            self._elector.release()
        if reason:
            self._on_loss(reason)

    def _take_part(self, elector: Elector) -> str:
        """Return the reason for the loss of the leadership, or an empty string if the process ends."""
        while not self._ending.is_set():
            began = time.monotonic()
            if self._step(elector) is Role.LOST:
                return elector.reason
            self._wake.wait(max(0.0, began + self._times.interval_s - time.monotonic()))
            self._wake.clear()
        return ""

    def _step(self, elector: Elector) -> Role:
        before = elector.role
        try:
            role = elector.step()
        except StorageError as error:
            logger.warning("the election does not respond: %s", error.message)
            return elector.role
        except PenstockError as error:
            logger.error("the record of the election cannot be read: %s", error)
            return elector.role
        if role is Role.LEADING and before is Role.WAITING:
            self._leads.set()
            self.on_lead()
        with self._heartbeats:
            self._heartbeats.notify_all()
        return role

    def _other(self) -> Holder | None:
        return None if self.leads or self._elector is None else self._elector.leader

    def _on_death(self, holder_id: str) -> None:
        assert self._elector is not None
        logger.warning("the process of the leader %s has ended", holder_id)
        self._elector.report_death(holder_id)
        self._wake.set()
