"""The parent process of the other processes of a cluster.

It starts each process when its condition is true, starts it again when it ends, and ends all of them after
SIGTERM. At the node level it is the first process of the node's pid namespace, which has two consequences. It
must reap orphans of containers. The kernel ends everything else in the namespace when this process ends.
At the control level, each child has a parent-death signal for the same effect.

Run as ``python -m tools.devcluster.supervisor STATE-DIRECTORY``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tools.devcluster import api, node
from tools.devcluster.components import Component, components
from tools.devcluster.plan import Plan, load

POLL_SECONDS = 0.05
RESTART_SECONDS = 1.0
PATIENCE_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL for a process that keeps data."""

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Supervisor:
    """The components of one cluster, which run until SIGTERM."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.stopping = False
        self._not_before: dict[str, float] = {}
        self._api_ready = False
        self._api_checked_at = 0.0

    def run(self) -> None:
        """Run until SIGTERM."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        wanted = components(self.plan, self.api_ready)
        while not self.stopping:
            self._reap()
            for component in wanted:
                due = self._not_before.get(component.name, 0.0) <= time.monotonic()
                if component.name not in self.running and due and component.ready():
                    self._start(component)
            time.sleep(POLL_SECONDS)
        self._end(wanted)

    def api_ready(self) -> bool:
        """Return whether the API server was ever ready. Components that lose it later find it again without help."""
        if not self._api_ready and "kube-apiserver" in self.running and time.monotonic() - self._api_checked_at > 0.2:
            self._api_ready = api.serves(self.plan)
            self._api_checked_at = time.monotonic()
        return self._api_ready

    def _stop(self, _signal: int, _frame: object) -> None:
        self.stopping = True

    def _start(self, component: Component) -> None:
        with (self.plan.logs / f"{component.name}.log").open("ab") as log:
            self.running[component.name] = subprocess.Popen(
                component.command,
                cwd=self.plan.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._record()

    def _reap(self) -> None:
        names = {process.pid: name for name, process in self.running.items()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in names:
                name = names[pid]
                code = os.waitstatus_to_exitcode(status)
                self.running.pop(name).returncode = code
                self._not_before[name] = time.monotonic() + RESTART_SECONDS
                print(f"{time.strftime('%H:%M:%S')} {name} ended with code {code}; starting it again", flush=True)
                self._record()

    def _record(self) -> None:
        """Record the process of each component, for ``status`` and for tests that stop one."""
        path = pids_file(self.plan)
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps({name: process.pid for name, process in self.running.items()}))
        scratch.rename(path)

    def _end(self, components: list[Component]) -> None:
        """End the running components. Only a component that keeps data gets time to end cleanly."""
        for component in components:
            process = self.running.get(component.name)
            if process is not None and not component.keeps_data:
                process.kill()
        for component in components:
            process = self.running.get(component.name)
            if process is not None and component.keeps_data:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                try:
                    process.wait(timeout=PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def pids_file(plan: Plan) -> Path:
    """Return the file of the process ids, which are those of the supervisor's pid namespace."""
    return plan.root / "pids.json"


def recorded(plan: Plan) -> dict[int, str]:
    """Return the components by process id in the supervisor's pid namespace."""
    try:
        pids: dict[str, int] = json.loads(pids_file(plan).read_text())
    except FileNotFoundError:
        return {}
    return {pid: name for name, pid in pids.items()}


def main(root: Path) -> None:
    """Prepare the node, if the cluster has one, then supervise."""
    plan = load(root)
    if plan is None:
        raise SystemExit(f"{root} has no cluster")
    if plan.level == "node":
        node.furnish(plan)
    Supervisor(plan).run()
    # the kernel ends the rest of the pid namespace, mainly containers
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
