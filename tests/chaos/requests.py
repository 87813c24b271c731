"""What a soak asks of the job over its REST API: alone, at the same time as each other, and nonsense."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from penstock.cli.client import RestClient
from penstock.cli.errors import MasterUnreachable, RequestFailed
from tests.chaos.running_job import RunningJob
from tests.chaos.storage_proxy import Disorder, Order, Target

ANSWERED_S = 240.0
"""Every request has its answer by then."""
PARALLELISMS = (1, 1, 2, 2, 3, 4)
"""The cluster starts with two slots, and starts more when they are needed."""
_GET_S = 20.0


@dataclass
class Asked:
    """A request and its answer."""

    kind: str
    is_accepted: bool = False
    is_answered: bool = False
    location: str = ""
    failure: str = ""


@dataclass
class JobRequests:
    """Asks the job's present JobManager. Its methods may be called from several threads."""

    job: RunningJob
    random: random.Random
    answers: dict[str, int] = field(default_factory=lambda: {"succeeded": 0, "failed": 0})
    kept: list[str] = field(default_factory=list)
    """Savepoints that are there."""

    # --- one at a time ----------------------------------------------------------------------------------------

    def ask(self, kind: str, rng: random.Random) -> Asked:
        """Ask, and wait for the answer. A JobManager that restarts its job may refuse; then nothing was accepted.

        Raises:
            AssertionError: there was no answer in time, or one that must not be.
        """
        asked = Asked(kind)
        client = self.job.client()
        if client is None:
            return asked
        doomed = f"{self.job.savepoints}/doomed-{rng.getrandbits(40):x}"
        doom = self._doom(doomed) if "that fails" in kind else None
        try:
            path = self._begin(client, kind, doomed, rng)
            asked.is_accepted = True
            self._wait(f"{client.url}{path}", asked)
        except (RequestFailed, MasterUnreachable) as error:
            asked.failure = str(error)
        finally:
            if doom is not None:
                self.job.proxy.withdraw(doom)
        return asked

    def _begin(self, client: RestClient, kind: str, doomed: str, rng: random.Random) -> str:
        """The path below which the answer will be."""
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
        """No savepoint will ever be whole there."""
        within = directory.removeprefix("s3:/")
        return self.job.proxy.order(Disorder.REFUSE, Target.WRITE, times=1 << 30, within=within)

    def _wait(self, url: str, asked: Asked) -> None:
        """For the request's outcome, which is asked for at this URL."""
        until = time.monotonic() + ANSWERED_S
        while True:
            assert time.monotonic() < until, f"{asked.kind} got no answer:\n{self.job.told()}"
            try:
                told = httpx.get(url, timeout=_GET_S).json()
            except httpx.TransportError as error:
                if self.job.master.process.poll() is not None:  # it has ended, as it was asked to
                    asked.failure = str(error)
                    return
                told = {"status": {"id": "IN_PROGRESS"}}
            if told.get("status", {}).get("id") == "COMPLETED":
                break
            time.sleep(0.1)
        outcome = told.get("operation") or {}
        asked.is_answered = True
        asked.location = outcome.get("location") or ""
        asked.failure = (outcome.get("failure-cause") or {}).get("stack-trace", "")
        self.answers["failed" if asked.failure else "succeeded"] += 1
        if asked.kind == "savepoint" and asked.location:
            self.kept.append(asked.location)
        assert asked.failure or "that fails" not in asked.kind, f"{asked.kind} succeeded: {asked.location}"

    # --- together ---------------------------------------------------------------------------------------------

    def meet(self, kinds: list[str], rng: random.Random) -> list[Asked]:
        """Ask all of these within a tenth of a second; each gets one answer."""
        answers: list[Asked] = []
        errors: list[BaseException] = []

        def ask(kind: str, of_its_own: random.Random, pause_s: float) -> None:
            time.sleep(pause_s)
            try:
                answers.append(self.ask(kind, of_its_own))
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(
                target=ask, args=(kind, random.Random(rng.getrandbits(64)), rng.uniform(0, 0.1)), daemon=True
            )
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

    def storm(self, rng: random.Random, count: int) -> int:
        """Every path of the API in random order, from several threads, also with nonsense in it; how many were answered.

        Raises:
            AssertionError: an answer was a defect's (500), or did not come.
        """
        client = self.job.client()
        if client is None:
            return 0
        url = client.url
        try:
            paths = httpx.get(f"{url}/openapi.json", timeout=_GET_S).json()["paths"]
        except httpx.TransportError:
            return 0
        asked = [self._random_path(rng, paths) for _ in range(count)]
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

        threads = [threading.Thread(target=ask, args=(asked[n::3],), daemon=True) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_GET_S * count)
        wrong = [answer for answer in answered if answer[2] >= 500 and answer[2] != 503]
        assert not wrong, f"the REST API answered {wrong[:3]}"
        return len(answered)

    def _random_path(self, rng: random.Random, paths: dict[str, dict[str, object]]) -> tuple[str, str]:
        """Only such as change nothing: reads, and changes that name what is not there."""
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
