"""The soak's requests to the job's REST API: one at a time, concurrent ones, and invalid ones."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import httpx

from penstock.cli.client import RestClient
from penstock.cli.errors import MasterUnreachable, RequestFailed
from tests.chaos.faults.storage_proxy import Disorder, Order, Target
from tests.chaos.running_job import RunningJob

ANSWERED_S = 240.0
"""Seconds within which every request gets its response."""
PARALLELISMS = (1, 1, 2, 2, 3, 4)
"""Possible parallelisms. The cluster starts with two slots, and adds more when necessary."""
_GET_S = 20.0


@dataclass
class Asked:
    """A request and its result."""

    kind: str
    is_accepted: bool = False
    is_answered: bool = False
    location: str = ""
    failure: str = ""


@dataclass
class JobRequests:
    """Requests to the job's current JobManager. Several threads may call its methods."""

    job: RunningJob
    random: Random
    answers: dict[str, int] = field(default_factory=lambda: {"succeeded": 0, "failed": 0})
    kept: list[str] = field(default_factory=list)
    """Existing savepoints."""

    # --- one at a time ----------------------------------------------------------------------------------------

    def ask(self, kind: str, rng: Random) -> Asked:
        """Send a request and wait for its result. A JobManager that restarts its job may refuse it.

        Raises:
            AssertionError: the result did not arrive in time, or is not allowed.
        """
        request = Asked(kind)
        client = self.job.client()
        if client is None:
            return request
        doomed = f"{self.job.savepoints}/doomed-{rng.getrandbits(40):x}"
        doom = self._doom(doomed) if "that fails" in kind else None
        try:
            path = self._begin(client, kind, doomed, rng)
            request.is_accepted = True
            self._wait(f"{client.url}{path}", request)
        except (RequestFailed, MasterUnreachable) as error:
            request.failure = str(error)
        finally:
            if doom is not None:
                self.job.proxy.withdraw(doom)
        return request

    def _begin(self, client: RestClient, kind: str, doomed: str, rng: Random) -> str:
        """Start an operation, and return the path of its result."""
        job_id = self.job.job_id
        match kind:
            case "savepoint":
                return client.savepoint(job_id, None)
            case "checkpoint":
                return f"/jobs/{job_id}/checkpoints/{client._trigger('POST', f'/jobs/{job_id}/checkpoints', {})}"
            case "rescale":
                return client.rescale(job_id, rng.choice(PARALLELISMS))
            case "savepoint with cancel that fails":
                return client.savepoint(job_id, doomed, cancel=True)
            case "stop that fails":
                return client.stop(job_id, doomed)
            case "stop with drain that fails":
                return client.stop(job_id, doomed, drain=True)
            case "stop":
                return client.stop(job_id, None)
            case "stop with drain":
                return client.stop(job_id, None, drain=True)
            case other:
                raise ValueError(other)

    def _doom(self, directory: str) -> Order:
        """Make every savepoint in this directory fail."""
        within = directory.removeprefix("s3:/")
        return self.job.proxy.order(Disorder.REFUSE, Target.WRITE, times=1 << 30, within=within)

    def _wait(self, url: str, request: Asked) -> None:
        """Wait for the result of the request at this URL."""
        until = time.monotonic() + ANSWERED_S
        while True:
            assert time.monotonic() < until, f"{request.kind} got no response:\n{self.job.describe()}"
            try:
                answer = httpx.get(url, timeout=_GET_S).json()
            except httpx.TransportError as error:
                if self.job.master.process.poll() is not None:  # it has ended, as requested
                    request.failure = str(error)
                    return
                answer = {"status": {"id": "IN_PROGRESS"}}
            if answer.get("status", {}).get("id") == "COMPLETED":
                break
            time.sleep(0.1)
        outcome = answer.get("operation") or {}
        request.is_answered = True
        request.location = outcome.get("location") or ""
        request.failure = (outcome.get("failure-cause") or {}).get("stack-trace", "")
        self.answers["failed" if request.failure else "succeeded"] += 1
        if request.kind == "savepoint" and request.location:
            self.kept.append(request.location)
        assert request.failure or "that fails" not in request.kind, f"{request.kind} succeeded: {request.location}"

    # --- together ---------------------------------------------------------------------------------------------

    def meet(self, kinds: list[str], rng: Random) -> list[Asked]:
        """Send all of these requests within a tenth of a second. Each gets one result."""
        answers: list[Asked] = []
        errors: list[BaseException] = []

        def ask(kind: str, of_its_own: Random, pause_s: float) -> None:
            time.sleep(pause_s)
            try:
                answers.append(self.ask(kind, of_its_own))
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=ask, args=(kind, Random(rng.getrandbits(64)), rng.uniform(0, 0.1)), daemon=True)
            for kind in kinds
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(ANSWERED_S + 30)
        assert not any(thread.is_alive() for thread in threads), f"not all of {kinds} were answered"
        if errors:
            raise errors[0]
        return answers

    # --- everything else of the API ---------------------------------------------------------------------------

    def storm(self, rng: Random, count: int) -> int:
        """Call every path of the API in random order from several threads, also with invalid values. Return the number of responses.

        Raises:
            AssertionError: a response was a defect (500), or missing.
        """
        client = self.job.client()
        if client is None:
            return 0
        url = client.url
        try:
            paths = httpx.get(f"{url}/openapi.json", timeout=_GET_S).json()["paths"]
        except httpx.TransportError:
            return 0
        requested = [self._random_path(rng, paths) for _ in range(count)]
        answered: list[tuple[str, str, int]] = []

        def ask(mine: list[tuple[str, str]]) -> None:
            with httpx.Client(base_url=url, timeout=_GET_S) as http:
                for method, path in mine:
                    try:
                        with http.stream(method, path) as answer:
                            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                                answer.read()  # a stream of events has no end
                        answered.append((method, path, answer.status_code))
                    except httpx.TransportError as error:
                        if self.job.master.process.poll() is None:
                            answered.append((method, path, 599))
                            print(f"  {method} {path}: {error!r}", flush=True)

        threads = [threading.Thread(target=ask, args=(requested[n::3],), daemon=True) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_GET_S * count)
        wrong = [answer for answer in answered if answer[2] >= 500 and answer[2] != 503]
        assert not wrong, f"the REST API answered {wrong[:3]}"
        return len(answered)

    def _random_path(self, rng: Random, paths: dict[str, dict[str, object]]) -> tuple[str, str]:
        """Return a request that changes nothing: a read, or a change of an object that does not exist."""
        values: dict[str, Callable[[], str]] = {
            "job_id": lambda: rng.choice((self.job.job_id, "0" * 32, "%00", "..")),
            "checkpoint_id": lambda: rng.choice(("1", "-1", "99999999999999999999")),
        }
        path = rng.choice(sorted(paths))
        method = rng.choice(sorted(paths[path])).upper()
        if method != "GET":
            values["job_id"] = lambda: "f" * 32
            if "{job_id}" not in path:
                method = "GET"
        unknown = lambda: rng.choice(("0", "check", "x" * 300, "-1"))  # noqa: E731 - a default for the look-up
        return method, re.sub(r"\{(\w+)\}", lambda name: values.get(name[1], unknown)(), path)
