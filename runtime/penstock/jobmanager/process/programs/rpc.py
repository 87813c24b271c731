"""Calls between the process of a session and the processes of its programs, in both directions over one Unix socket.

A message is a msgpack array behind its length (4 bytes). Arguments and results are converted with the type hints of the called function,
so a peer can send only values of these types. A process of a program runs user code, so the session must not unpickle anything from it.
"""

from __future__ import annotations

import itertools
import logging
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from inspect import signature
from typing import Any, TypeVar, get_type_hints

import msgspec

from penstock.common import errors
from penstock.common.errors import ClusterError, NotNow, PenstockError
from penstock.rest import errors as rest_errors

T = TypeVar("T")
MAX_MESSAGE = 256 * 2**20
"""Maximum size of a message in bytes. The state entries of a request are the largest messages."""
THREADS = 32
"""Maximum number of calls of a peer that run at once."""
MAX_CALLS = 1_000
"""Maximum number of calls of a peer that wait or run. Further calls fail."""
_LENGTH = struct.Struct(">I")
_SECONDS = struct.Struct("@ll")
"""Seconds and µs of a timeout of the socket."""
_CALL, _NOTICE, _RESULT, _FAILURE = range(4)

logger = logging.getLogger(__name__)


class Disconnected(ClusterError):
    """The peer's process has ended."""

    code = "PROGRAM_PROCESS"


class _Failure(msgspec.Struct):
    """Exception of a called function."""

    kind: str
    message: str
    remedy: str = ""
    operator: str = ""
    location: str = ""

    @classmethod
    def of(cls, error: BaseException) -> _Failure:
        if isinstance(error, PenstockError):
            return cls(type(error).__name__, error.message, error.remedy, error.operator, error.location)
        return cls("", f"{type(error).__name__}: {error}")

    def error(self) -> PenstockError:
        """Return the exception. A class that this process does not know becomes a `ClusterError`."""
        kind = getattr(errors, self.kind, None) or getattr(rest_errors, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
            kind = ClusterError
        return kind(self.message, remedy=self.remedy, operator=self.operator, location=self.location)


class _Function:
    """Function that a peer may call, with the types of its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = get_type_hints(function)
        self._function = function
        self._types = [hints.get(name, Any) for name in signature(function).parameters]

    def __call__(self, arguments: list[Any]) -> Any:
        if len(arguments) > len(self._types):
            raise TypeError(f"{len(arguments)} arguments instead of {len(self._types)}")
        return self._function(*map(msgspec.convert, arguments, self._types))


class Connection:
    """One end of the connection. Thread-safe.

    Args:
        functions: functions that the peer may call, by name. Notices run one after the other, calls run in parallel.
        on_closed: function that is called once when the connection has ended.
        send_timeout_s: time in seconds after which the connection ends if the peer reads nothing. None means no limit.
    """

    def __init__(
        self,
        peer: socket.socket,
        functions: Mapping[str, Callable[..., Any]],
        on_closed: Callable[[], object] = lambda: None,
        send_timeout_s: float | None = None,
    ) -> None:
        self._socket = peer
        self._functions = {name: _Function(function) for name, function in functions.items()}
        self._on_closed = on_closed
        self._pending: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._closed = False
        self._is_silent = False
        """Whether the peer has sent nothing since a call timed out."""
        self._sending, self._lock = threading.Lock(), threading.Lock()
        self._calls = threading.BoundedSemaphore(MAX_CALLS)
        if send_timeout_s is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SECONDS.pack(int(send_timeout_s), 0))
        self._pool = ThreadPoolExecutor(THREADS, "program-call")
        self._thread = threading.Thread(target=self._receive, name="program-calls", daemon=True)

    def add(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Let the peer also call these functions."""
        self._functions |= {name: _Function(function) for name, function in functions.items()}

    def start(self) -> Connection:
        self._thread.start()
        return self

    @property
    def is_closed(self) -> bool:
        return self._closed

    def call(
        self,
        function: str,
        *arguments: Any,
        result: type[T] | Any = Any,
        timeout_s: float | None = None,
        even_if_silent: bool = False,
    ) -> Any:
        """Call a function of the peer and return its result as `result`.

        Args:
            even_if_silent: wait also if the peer has sent nothing since a call timed out. Otherwise such a call fails at once, so that a
                peer that hangs does not delay the caller again and again.

        Raises:
            PenstockError: exception of the function.
            ClusterError: the result has another type.
            Disconnected: the peer's process has ended.
            TimeoutError: no result came within `timeout_s` seconds.
        """
        if self._is_silent and not even_if_silent:
            raise TimeoutError(f"the call {function!r} is not sent, because the peer does not answer")
        number, future = next(self._numbers), Future[Any]()
        with self._lock:
            if self._closed:
                raise _gone()
            self._pending[number] = future
        try:
            self._send(_CALL, number, function, arguments)
            return msgspec.convert(future.result(timeout_s), result)
        except TimeoutError:
            self._is_silent = True
            raise
        except msgspec.ValidationError as error:
            raise ClusterError(f"the answer to {function!r} is not valid: {error}") from None
        finally:
            with self._lock:
                self._pending.pop(number, None)

    def notify(self, function: str, *arguments: Any) -> None:
        """Call a function of the peer without waiting. A notice to a peer that has ended is dropped."""
        with suppress(Disconnected):
            self._send(_NOTICE, 0, function, arguments)

    def _send(self, kind: int, number: int, name: str, content: Any) -> None:
        body = msgspec.msgpack.encode((kind, number, name, content))
        if len(body) > MAX_MESSAGE:
            raise ClusterError(f"a message of {name!r} has {len(body)} bytes. The maximum is {MAX_MESSAGE}")
        try:
            with self._sending:
                self._socket.sendall(_LENGTH.pack(len(body)) + body)
        except BlockingIOError:  # a part of the message may have been sent
            logger.warning("the process of a program reads nothing, so its connection ends")
            self.close()
            raise _gone() from None
        except OSError:
            raise _gone() from None

    def _receive(self) -> None:
        try:
            while (head := self._exactly(_LENGTH.size)) is not None:
                (length,) = _LENGTH.unpack(head)
                if length > MAX_MESSAGE or (body := self._exactly(length)) is None:
                    break
                self._is_silent = False
                self._take(*msgspec.msgpack.decode(body, type=tuple[int, int, str, Any]))
        except Exception:
            logger.exception("the connection to the process of a program ends")
        finally:
            self.close()

    def _take(self, kind: int, number: int, name: str, content: Any) -> None:
        if kind == _CALL:
            if self._calls.acquire(blocking=False):
                self._pool.submit(self._answer, number, name, content)
            else:
                error = ClusterError(f"more than {MAX_CALLS} calls of one process wait for an answer")
                self._reply(_FAILURE, number, name, _Failure.of(error))
        elif kind == _NOTICE:
            try:
                self._functions[name](content)
            except Exception:
                logger.exception("the notice %r of a program's process is ignored", name)
        else:
            failure = None if kind == _RESULT else msgspec.convert(content, _Failure)
            future = self._taken(number)
            if future is not None and failure is None:
                future.set_result(content)
            elif future is not None and failure is not None:
                future.set_exception(failure.error())

    def _taken(self, number: int) -> Future[Any] | None:
        """Return the future of a call that still waits, and let it take no second result."""
        with self._lock:
            return self._pending.pop(number, None)

    def _answer(self, number: int, name: str, arguments: Any) -> None:
        kind = _RESULT
        try:
            if name not in self._functions:
                raise NotNow(f"the process of the program has no function {name!r} yet", remedy="ask again in a moment")
            content = self._functions[name](arguments)
        except Exception as error:
            if not isinstance(error, PenstockError):
                logger.exception("the call %r of a program's process failed", name)
            kind, content = _FAILURE, _Failure.of(error)
        finally:
            self._calls.release()
        self._reply(kind, number, name, content)

    def _reply(self, kind: int, number: int, name: str, content: Any) -> None:
        try:
            self._send(kind, number, name, content)
        except Disconnected:
            return
        except Exception as error:  # the result is too large, or it has a value that cannot be sent
            logger.warning("the result of the call %r cannot be sent: %s", name, error)
            with suppress(Disconnected):
                self._send(_FAILURE, number, name, _Failure.of(error))

    def _exactly(self, count: int) -> bytes | None:
        received = bytearray()
        while len(received) < count:
            try:
                more = self._socket.recv(min(count - len(received), 1 << 20))
            except OSError:
                return None
            if not more:
                return None
            received += more
        return bytes(received)

    def close(self) -> None:
        """End the connection. Calls that wait fail with `Disconnected`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pending = list(self._pending.values())
            self._pending.clear()
        for future in pending:
            future.set_exception(_gone())
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._pool.shutdown(wait=False)
        self._on_closed()


def _gone() -> Disconnected:
    return Disconnected("the process of the program has ended", remedy="read its end in the log of the program")
