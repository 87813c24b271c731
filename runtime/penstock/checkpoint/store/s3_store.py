"""S3 through s3fs: one attempt per call, with a time limit. The server's error code classifies a failure.

The retries of s3fs and botocore are turned off. A retry inside of them would hide from `retrying_store` that the
outcome of the first attempt is unknown. Credentials, region and endpoint come from the options or, as for every AWS
SDK, from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, a role of the pod, …).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as EndpointUnreachable
from botocore.parsers import ResponseParserError
from fsspec.asyn import sync

from penstock.checkpoint.store.fsspec_store import FsspecStore, too_large
from penstock.checkpoint.store.object_store import (
    ObjectExists,
    ObjectMissing,
    PermanentFailure,
    Refused,
    StoreFailure,
    TransientFailure,
)
from penstock.checkpoint.store.s3_session import client_config, new_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONNECT_TIMEOUT = 5
"""Seconds to reach the server."""
_BLOCK = 256 * 1024
_MISSING = {"NoSuchKey", "404"}
_EXISTS = {"PreconditionFailed", "412"}
_TRANSIENT = {
    "ConditionalRequestConflict",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestTimeTooSkewed",
    "ExpiredToken",
}
_BEYOND_THE_END = {"InvalidRange", "416"}
_NO_SUCH_REQUEST = {
    "NotImplemented",
    "MethodNotAllowed",
    "501",
    "405",
    "MissingContentMD5",
    "InvalidRequest",
    "InvalidDigest",
}
"""Answers of stores without DeleteObjects, or of stores that need a header that clients no longer send (Content-MD5)."""
_TRANSIENT_STATUS = {408, 409, 425, 429, 500, 502, 503, 504}


class S3Store(FsspecStore):
    """The store of `s3://`. The module's docstring describes it. Options are those of `s3fs.S3FileSystem`."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__("s3", options)
        self._has_delete_objects = True

    def get(self, url: str) -> bytes:
        with self._failures(url):
            if self.read_limit is not None:
                return self._get_bounded(url, self.read_limit)
            # max_concurrency=1 makes one GET. Otherwise s3fs requests the size first.
            return bytes(self._call("cat_file", self._path(url), moved=1 << 30, max_concurrency=1))

    def _get_bounded(self, url: str, limit: int) -> bytes:
        """Read at most `limit` bytes, whatever size the server reports, within the time of one request."""
        file_system = self._file_system()
        bucket, key, _ = file_system.split_path(self._path(url))

        async def read() -> bytes:
            answer = await file_system._call_s3("get_object", Bucket=bucket, Key=key)
            content = bytearray()
            async with answer["Body"] as body:
                while block := await body.read(_BLOCK):
                    content += block
                    if len(content) > limit:
                        body.close()
                        raise too_large(url, limit)
            return bytes(content)

        content: bytes = sync(file_system.loop, read, timeout=self.request_timeout)
        return content

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        try:
            return super().get_range(url, offset, size)
        except StoreFailure as failure:
            if _code_of(failure.__cause__) in _BEYOND_THE_END:
                return b""
            raise

    def delete_many(self, urls: Sequence[str]) -> dict[str, StoreFailure]:
        """Delete with DeleteObjects, or one by one at a server without it."""
        if not urls or not self._has_delete_objects:
            return super().delete_many(urls)
        paths = {url: self._path(url).partition("/") for url in urls}
        bucket = next(iter(paths.values()))[0]
        by_key = {key: url for url, (_, _, key) in paths.items()}
        request = {"Objects": [{"Key": key} for key in by_key], "Quiet": True}
        try:
            with self._failures(urls[0]):
                answer = self._call("call_s3", "delete_objects", Bucket=bucket, Delete=request)
        except PermanentFailure as failure:
            if _code_of(failure.__cause__) not in _NO_SUCH_REQUEST:
                raise
            self._has_delete_objects = False
            return super().delete_many(urls)
        failures = [
            _failed_delete(url, error)
            for error in answer.get("Errors", ())
            # If the answer spells a key in another way, any of the objects may have failed. It does no harm to delete
            # all of them again.
            for url in ([by_key[error["Key"]]] if error.get("Key") in by_key else urls)
        ]
        return {failure.url: failure for failure in failures if not isinstance(failure, ObjectMissing)}

    def _open(self) -> Any:
        config = {
            "connect_timeout": CONNECT_TIMEOUT,
            "read_timeout": self.request_timeout,
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "max_pool_connections": 32,
            **client_config(),
            **self.options.get("config_kwargs", {}),
        }
        options = {"session": new_session(self.options.get("profile")), **self.options, "config_kwargs": config}
        import s3fs

        file_system = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False, **options)
        file_system.retries = 1
        return file_system

    def _classify(self, url: str, error: Exception) -> StoreFailure:
        answer = _answer_of(error)
        if answer is not None:
            return _from_answer(url, answer)
        if isinstance(error, NoCredentialsError | PartialCredentialsError):
            return Refused(url, f"no credentials: {error}")
        if isinstance(error, HTTPClientError | EndpointUnreachable | ResponseParserError):
            return TransientFailure(url, f"no answer ({error})")
        if isinstance(error, BotoCoreError):
            return PermanentFailure(url, f"{type(error).__name__}: {error}")
        if type(error).__module__.startswith("aiohttp"):
            return TransientFailure(url, f"connection lost ({type(error).__name__})")
        return super()._classify(url, error)


def _answer_of(error: BaseException | None) -> ClientError | None:
    """Return the server's answer inside a driver's exception."""
    while error is not None and not isinstance(error, ClientError):
        error = error.__cause__
    return error


def _code_of(error: BaseException | None) -> str:
    answer = _answer_of(error)
    return "" if answer is None else str(answer.response.get("Error", {}).get("Code", ""))


def _failed_delete(url: str, error: Mapping[str, Any]) -> StoreFailure:
    """Return the failure of one key in the answer to DeleteObjects. The answer has no HTTP status for a single key."""
    return _failure(url, str(error.get("Code", "")), str(error.get("Message", "")), 0)


def _from_answer(url: str, error: ClientError) -> StoreFailure:
    code = str(error.response.get("Error", {}).get("Code", ""))
    message = str(error.response.get("Error", {}).get("Message", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return _failure(url, code, message, status)


def _failure(url: str, code: str, message: str, status: int) -> StoreFailure:
    reason = f"{code} ({status}) {message}".strip()
    if code in _EXISTS or status == 412:
        return ObjectExists(url, reason)
    if code == "NoSuchBucket":
        return Refused(url, "the bucket does not exist")
    if code in _MISSING or status == 404:
        return ObjectMissing(url, "does not exist")
    if code in _TRANSIENT or status in _TRANSIENT_STATUS:
        return TransientFailure(url, reason)
    return Refused(url, reason) if 400 <= status < 500 else PermanentFailure(url, reason)
