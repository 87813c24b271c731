"""A client of the transaction coordinators for the JobManager, which has no producer.

librdkafka ends only the transactions that the same producer has started. Kafka's protocol needs only the id, the producer id and
the epoch. aiokafka has the connections (SASL, TLS), some of the requests, and the means to define the others.

A thread of the JobManager calls this client. An event loop in a separate thread executes the calls. So the loop notices
connections that close between two calls.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from penstock.common.errors import SinkError
from penstock.connectors.kafka.client import Properties, aiokafka, explained, package, resolved
from penstock.connectors.kafka.sink.transaction import Description

T = TypeVar("T")

_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR, _TIMED_OUT, _CONCURRENT = 14, 15, 16, 7, 51
_PASSING = (_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR, _TIMED_OUT, _CONCURRENT)
_NO_SUCH_ID = 105
_AT_ONCE = 64
"""Maximum number of concurrent requests."""
_FENCING_TIMEOUT_MS = 10_000


class CoordinatorClient:
    """A client that sends requests to transaction coordinators.

    Args:
        patience_s: seconds for which a request is retried while the coordinator moves, loads or does not answer.
        check: called between two tries. It raises an error when the caller no longer waits for the answer.
    """

    def __init__(self, properties: Properties, patience_s: float, check: Callable[[], None]) -> None:
        self._properties = properties
        self._patience_s = patience_s
        self._check = check
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._connecting: asyncio.Lock
        """Lock of the loop, so that concurrent requests create only one client."""
        self._resolved: dict[str, Any] = {}
        """Properties that the client was created with."""
        self._nodes: dict[str, int] = {}
        """Transactional id -> its coordinator at the last lookup."""

    # --- questions --------------------------------------------------------------------------------------------

    def end(self, id: str, producer_id: int, epoch: int, *, commit: bool) -> int:
        """Commit or abort a transaction. Return Kafka's error code. The code is 0 if this call or an earlier call has ended it."""
        request = package("aiokafka.protocol.transaction").EndTxnRequest(id, producer_id, epoch, commit)
        problem = f"transaction {id!r} cannot be {'committed' if commit else 'aborted'}"
        return int(self._run(self._send_to_coordinator(id, request, problem)).error_code)

    def end_all(self, transactions: Iterable[tuple[str, int, int]], *, commit: bool) -> list[int]:
        """Commit or abort many transactions concurrently. Return the codes in their order."""
        make = package("aiokafka.protocol.transaction").EndTxnRequest
        word = "committed" if commit else "aborted"
        requests = [
            self._send_to_coordinator(id, make(id, producer_id, epoch, commit), f"transaction {id!r} cannot be {word}")
            for id, producer_id, epoch in transactions
        ]
        return [int(answer.error_code) for answer in self._run(self._all(requests))]

    def fence(self, ids: Iterable[str]) -> None:
        """Abort open transactions of these ids and give the ids new epochs. Brokers then refuse their earlier producers.

        Raises:
            SinkError: the cluster does not answer, or denies access.
        """
        make = package("aiokafka.protocol.transaction").InitProducerIdRequest
        requests = [
            self._send_to_coordinator(id, make(id, _FENCING_TIMEOUT_MS), f"transaction {id!r} cannot be aborted")
            for id in ids
        ]
        for answer in self._run(self._all(requests)):
            if answer.error_code:
                raise self._refused("transactions of earlier attempts cannot be aborted", answer.error_code)

    def describe(self, id: str) -> Description | None:
        """Return the description of an id, or None if the cluster does not know it."""
        requests = package("penstock.connectors.kafka.sink.transaction_requests")
        answer = self._run(
            self._send_to_coordinator(id, requests.DescribeTransactionsRequest([id]), f"{id!r} cannot be described")
        )
        code, name, state, timeout, start, producer_id, epoch, _, _ = answer.transactions[0]
        if code == _NO_SUCH_ID:
            return None
        if code:
            raise self._refused(f"transaction {id!r} cannot be described", code)
        return Description(name, state, producer_id, epoch, start, timeout)

    def describe_all(self, ids: Iterable[str]) -> list[Description]:
        """Return the descriptions of those ids that the cluster knows."""
        return [found for id in ids if (found := self.describe(id)) is not None]

    def find(self, prefix: str) -> dict[str, str]:
        """Return the ids with this prefix, with the state of each.

        Raises:
            SinkError: see `fence`; also if the brokers are older than 3.0.
        """
        requests = package("penstock.connectors.kafka.sink.transaction_requests")
        return self._run(self._listed(requests.ListTransactionsRequest, prefix))

    # --- requests -------------------------------------------------------------------------------------------

    async def _listed(self, make: Any, prefix: str) -> dict[str, str]:
        """Return the ids from all present brokers of the cluster.

        If a broker does not answer, its coordinators soon move, perhaps to a broker that has already answered. So the client
        sends the request to all brokers again.
        """

        async def send() -> Any:
            found: dict[str, str] = {}
            for broker in (await self._connected()).cluster.brokers():
                answer = await self._send(broker.nodeId, make())
                if _passing_code(answer):
                    return answer
                if answer.error_code:
                    raise self._refused("transactions cannot be listed", answer.error_code)
                found |= {id: state for id, _, state, _ in answer.transactions if id.startswith(prefix)}
            return found

        found: dict[str, str] = await self._until(send, "transactions cannot be listed")
        return found

    async def _send_to_coordinator(self, id: str, request: Any, problem: str) -> Any:
        async def send() -> Any:
            node = self._nodes.get(id)
            client = await self._connected()
            if node is None:
                kind = package("aiokafka.client").CoordinationType.TRANSACTION
                node = self._nodes[id] = await client.coordinator_lookup(kind, id)
            return await self._send(node, request)

        def forget() -> None:
            self._nodes.pop(id, None)

        return await self._until(send, problem, forget)

    async def _send(self, node: int, request: Any) -> Any:
        return await (await self._connected()).send(node, request)

    async def _all(self, requests: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(question: Coroutine[Any, Any, Any]) -> Any:
            async with room:
                return await question

        return list(await asyncio.gather(*map(one, requests)))

    async def _until(
        self, send: Callable[[], Coroutine[Any, Any, Any]], problem: str, forget: Callable[[], None] = lambda: None
    ) -> Any:
        """Send the request until the answer is final. Retry temporary errors."""
        errors = package("aiokafka.errors")
        deadline = time.monotonic() + self._patience_s
        pause = 0.02
        while True:
            reason: BaseException
            try:
                answer = await send()
                code = _passing_code(answer)
                if not code:
                    return answer
                reason = errors.for_code(code)()
            except (TimeoutError, errors.KafkaError, OSError) as error:
                reason = error
                if not _may_pass(errors, error):
                    raise explained(SinkError, problem, error, self._properties) from error
            forget()
            if time.monotonic() > deadline:
                raise explained(
                    SinkError, f"{problem} within {self._patience_s:.0f} s", reason, self._properties
                ) from reason
            self._check()
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)
            if isinstance(reason, errors.NodeNotReadyError | errors.KafkaConnectionError):
                await self._renew()
            if self._client is not None and not isinstance(reason, errors.CoordinatorNotAvailableError):
                self._client.force_metadata_update()

    async def _connected(self) -> Any:
        async with self._connecting:
            if self._client is None:
                self._resolved = resolved(self._properties)
                client = package("aiokafka.client").AIOKafkaClient(**aiokafka(self._properties))
                try:
                    await client.bootstrap()
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client

    async def _renew(self) -> None:
        """Close the client if the secrets in its files have changed. The next request makes a new client."""
        async with self._connecting:
            if self._client is not None and resolved(self._properties) != self._resolved:
                client, self._client = self._client, None
                await client.close()

    def _run(self, question: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop, self._connecting = asyncio.new_event_loop(), asyncio.Lock()
            threading.Thread(target=self._loop.run_forever, name="penstock-kafka", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()

    def _refused(self, problem: str, code: int) -> Exception:
        return explained(SinkError, problem, package("aiokafka.errors").for_code(code)(), self._properties)

    def close(self) -> None:
        loop, self._loop = self._loop, None
        client, self._client = self._client, None
        if loop is None:
            return

        async def end() -> None:
            if client is not None:
                await client.close()
            loop.stop()

        asyncio.run_coroutine_threadsafe(end(), loop)


def _passing_code(answer: Any) -> int:
    """Return the error code of an answer if a retry may succeed, else 0."""
    code = getattr(answer, "error_code", 0)
    if not code and getattr(answer, "transactions", None) and len(answer.transactions[0]) > 5:
        code = answer.transactions[0][0]
    return int(code) if code in _PASSING else 0


def _may_pass(errors: Any, error: BaseException) -> bool:
    refused = (
        errors.AuthenticationFailedError,
        errors.SaslAuthenticationFailed,
        errors.AuthenticationMethodNotSupported,
        errors.TransactionalIdAuthorizationFailed,
        errors.ClusterAuthorizationFailedError,
        errors.UnsupportedSaslMechanismError,
        errors.IncompatibleBrokerVersion,
    )
    return not isinstance(error, refused)
