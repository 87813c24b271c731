"""The masters that a client may ask: their addresses, and the repetition of a request while another master takes over.

A request is repeated only if that cannot execute it twice: it reads, it has a trigger id, or it did not reach a master.

- If a master does not respond, the client asks the next one. If no master has ever responded, the client asks each one only once. So a wrong
  address is an error at once.
- A standby answers 503 with `NO_LEADER` while no master leads. The client then waits for the time in `Retry-After`. `LEADER_LOST` means that a
  lost leader may have executed the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx

from penstock.cli.errors import MasterUnreachable, UsageError

MAX_ADDRESSES = 16
PATIENCE_S = 30.0
"""Time in seconds after the first failure for which a request is repeated."""
ALONE_S = 5.0
"""The same time for a single address that does not respond. It may be a proxy, which finds another master soon."""
NO_LEADER, LEADER_LOST = "NO_LEADER", "LEADER_LOST"
"""Error codes of a standby (`rest.leader_proxy`): the request was not executed, and it may have been executed."""
_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout)


def split_addresses(text: str) -> list[str]:
    """Return the addresses of a list that is separated by commas.

    >>> split_addresses("http://a:8081, http://b:8081")
    ['http://a:8081', 'http://b:8081']

    Raises:
        UsageError: the list has no address, or too many.
    """
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not 0 < len(found) <= MAX_ADDRESSES:
        raise UsageError(
            f"'{text[:200]}' has {len(found)} addresses of JobManagers",
            remedy=f"write 1 to {MAX_ADDRESSES} addresses, separated by commas: -m http://HOST-1:8081,http://HOST-2:8081",
        )
    return found


class Masters:
    """Masters of one cluster. Thread-safe.

    Args:
        urls: URLs of the masters. A request goes to the first one, and later to the one that has responded last.
    """

    def __init__(
        self,
        urls: list[str],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.urls = urls
        self.is_ending = False
        """Whether the cluster shuts down. Then a request is not repeated."""
        self._clock, self._sleep = clock, sleep
        self._position = 0
        self._has_responded = False

    @property
    def url(self) -> str:
        """Return the URL of the master that gets the next request."""
        return self.urls[self._position]

    def send(self, request: Callable[[str], httpx.Response], *, may_repeat: bool) -> httpx.Response:
        """Send a request, and repeat it while another master takes over.

        Args:
            request: function that sends the request to a URL.
            may_repeat: whether a request that a master may have executed can be repeated.

        Raises:
            httpx.TransportError: no master responds.
        """
        failures = 0
        until: float | None = None
        while True:
            url = self.url
            try:
                response = request(url)
            except httpx.TransportError as error:
                failures += 1
                until = until or self._clock() + (PATIENCE_S if len(self.urls) > 1 else ALONE_S)
                is_repeated = may_repeat or isinstance(error, _NOT_SENT)
                if not is_repeated or self._is_hopeless(error, failures) or self._clock() > until:
                    raise
                pause = 0.0 if failures % len(self.urls) else _PAUSE_S
            else:
                self._has_responded = True
                until = until or self._clock() + PATIENCE_S
                is_refused = _code_of(response) in ((NO_LEADER, LEADER_LOST) if may_repeat else (NO_LEADER,))
                if not is_refused or self.is_ending or self._clock() > until:
                    return response
                pause = _pause_of(response)
            self._go_on_from(url)
            self._sleep(pause)

    def _is_hopeless(self, error: httpx.TransportError, failures: int) -> bool:
        """Return whether no other master can respond soon."""
        if self.is_ending:
            return True
        if len(self.urls) == 1 and isinstance(error, httpx.TimeoutException):
            return True
        return not self._has_responded and failures >= len(self.urls)

    def _go_on_from(self, url: str) -> None:
        """Ask the next master, unless another thread has chosen one."""
        if self.url == url:
            self._position = (self._position + 1) % len(self.urls)


def _code_of(response: httpx.Response) -> str:
    """Return the error code of a master that does not lead, or an empty string."""
    return response.headers.get("X-Penstock-Error", "") if response.status_code == 503 else ""


def _pause_of(response: httpx.Response) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), _LONGEST_PAUSE_S) if text.isascii() and text.isdigit() else _PAUSE_S


def unreachable(url: str, error: Exception) -> MasterUnreachable:
    """Return the error for a request that no master has answered."""
    return MasterUnreachable(f"the JobManager at {url} does not respond: {_reason(error)}", remedy=_remedy(url, error))


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.ConnectTimeout | httpx.ReadTimeout | httpx.WriteTimeout | httpx.PoolTimeout):
        return "no response in time"
    return str(error) or type(error).__name__


def _remedy(url: str, error: Exception) -> str:
    text = str(error)
    if "Hostname mismatch" in text or "IP address mismatch" in text:
        return "use a host name that is in the certificate, or pass such a name with --tls-server-name"
    if "CERTIFICATE_VERIFY_FAILED" in text and "expired" in text:
        return "renew the certificate of the JobManager"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "pass the CA that signed the certificate of the JobManager with --ca-file or PENSTOCK_CA_FILE"
    if "alert certificate required" in text or "alert unknown ca" in text:
        return "pass a client certificate that the JobManager accepts with --client-certificate"
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return "the server does not use TLS. Check the port, and the option rest.ssl.enabled of the JobManager"
    if url.startswith("http://") and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return f"if the JobManager uses TLS, pass https{url.removeprefix('http')} and --ca-file"
    return "start a JobManager there, or pass the address of another one with -m URL or PENSTOCK_MASTER"
