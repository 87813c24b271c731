"""A single HTTP request with a timeout."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import NamedTuple

import httpx

from penstock.common.errors import SourceError

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = 10
_MOST_BYTES = 256 * 1024 * 1024
_LONGEST_AFTER_S = 3600.0
_SHOWN = 200
_AWAY = "check the URL and that the server runs; the job retries when it fails over"


class NoAnswer(SourceError):
    """Error of a request that may succeed later.

    Args:
        after_s: seconds to wait before the retry; 0 if the server has not requested a pause.
    """

    def __init__(self, message: str, *, after_s: float = 0.0) -> None:
        super().__init__(message, remedy=_AWAY)
        self.after_s = after_s


class Response(NamedTuple):
    status: int
    content: bytes
    etag: str


async def fetch(url: str, headers: dict[str, str], timeout_s: float, shown: str) -> Response:
    """Send a request and return the response. Redirects are followed, but other servers do not receive the headers.

    Args:
        timeout_s: timeout for everything, including redirects.
        shown: the URL for errors.

    Raises:
        NoAnswer: the request failed, and a retry may succeed.
        SourceError: the server refuses the request, or the request is not valid.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _fetch(url, headers, timeout_s, shown)
    except TimeoutError:
        raise NoAnswer(f"{shown} did not send its complete response within {timeout_s:g} s") from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
        raise SourceError(
            f"the request to {shown} is not valid: {error}",
            remedy="correct the URL, the headers, or the server's redirect",
        ) from error
    except (httpx.HTTPError, OSError) as error:
        if _is_untrusted(error):
            raise SourceError(
                f"{shown}: its certificate is not trusted: {error}",
                remedy="set SSL_CERT_FILE in the pods to a file with the certificate of its authority, or correct the server's certificate",
            ) from error
        raise NoAnswer(f"{shown}: {type(error).__name__}: {error}") from error


async def _fetch(url: str, headers: dict[str, str], timeout_s: float, shown: str) -> Response:
    async with httpx.AsyncClient(timeout=timeout_s, verify=_certificates()) as client:
        request = client.build_request("GET", url, headers=headers)
        for _ in range(_REDIRECTS + 1):
            answer = await client.send(request, stream=True)
            try:
                following = answer.next_request
                if following is None:
                    return await _read(answer, shown)
            finally:
                await answer.aclose()
            if not _is_for(request.url, following.url):
                for name in headers:
                    following.headers.pop(name, None)
            request = following
    raise SourceError(f"{shown} redirects more than {_REDIRECTS} times", remedy="correct the URL")


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates. They are loaded once, because loading takes 40 ms of CPU."""
    return httpx.create_ssl_context()


def _is_for(first: httpx.URL, other: httpx.URL) -> bool:
    """Return whether `other` may receive the headers of a request to `first`."""
    is_safer = first.scheme == "http" and other.scheme == "https" and first.port is None and other.port is None
    return first.host == other.host and (is_safer or (first.scheme, first.port) == (other.scheme, other.port))


async def _read(answer: httpx.Response, shown: str) -> Response:
    content = bytearray()
    async for piece in answer.aiter_bytes():
        content += piece
        if len(content) > _MOST_BYTES:
            raise SourceError(
                f"the response of {shown} has more than {_MOST_BYTES:,} bytes",
                remedy="configure the server to return fewer records per response",
            )
    status = answer.status_code
    if status in _PASSING:
        raise NoAnswer(f"{shown} returned the status {status}", after_s=_after_s(answer.headers.get("Retry-After", "")))
    if not answer.is_success and status != httpx.codes.NOT_MODIFIED:
        raise SourceError(
            f"{shown} returned the status {status}: {bytes(content[:_SHOWN]).decode(errors='replace')}",
            remedy="correct the URL, or the headers with the credentials",
        )
    return Response(status, bytes(content), answer.headers.get("ETag", ""))


def _after_s(text: str) -> float:
    """Return the seconds of a `Retry-After` header, which contains seconds or a time.

    >>> _after_s("120"), _after_s("soon"), _after_s("Wed, 21 Oct 2015 07:28:00 GMT")
    (120.0, 0.0, 0.0)
    """
    try:
        seconds = (
            float(text) if text.strip().isdigit() else (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        )
    except (ValueError, TypeError):
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_AFTER_S)


def _is_untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
