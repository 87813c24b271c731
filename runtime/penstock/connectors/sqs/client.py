"""Clients of SQS, what its refusals mean, and whether another try would help."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.extras import module_of_extra

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
LOGGER = logging.getLogger("penstock.connectors.sqs")
_AMAZON = re.compile(r"sqs[.-]([a-z0-9-]+)\.amazonaws\.com(\.cn)?|([a-z0-9-]+)\.queue\.amazonaws\.com")
_MISSING = ("NonExistentQueue", "QueueDoesNotExist")
_KEYS = (
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
    "ExpiredToken",
    "InvalidSecurity",
    "AuthFailure",
)
_RIGHTS = ("AccessDenied", "UnauthorizedOperation", "NotAuthorized", "KmsAccessDenied", "KMS.AccessDenied")
_PASSING = (
    "Throttl",
    "TooManyRequests",
    "ServiceUnavailable",
    "InternalError",
    "InternalFailure",
    "RequestTimeout",
    "OverLimit",
)
_LONGEST_PAUSE_S = 3.0


def package() -> Any:
    """botocore.

    Raises:
        InvalidJob: it is not installed.
    """
    return module_of_extra("botocore", "sqs", "the SQS connector")


@dataclass(frozen=True)
class Queue:
    """
    Args:
        url: as SQS gives it.
        region: that of the URL, if it is Amazon's, else of the environment.
        patience_s: how long the service may be lost, overloaded or not answering.
    """

    url: str
    region: str = ""
    patience_s: float = 30.0

    def __post_init__(self) -> None:
        package()
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not self.name:
            raise InvalidJob(
                f"{self.url!r} is no URL of an SQS queue",
                remedy="write it as SQS gives it: https://sqs.eu-central-1.amazonaws.com/123456789012/orders",
            )

    @property
    def name(self) -> str:
        return urlsplit(self.url).path.rpartition("/")[2]

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(".fifo")

    def client(self, kind: type[PlatformError], threads: int = 1) -> Any:
        """
        Raises:
            PlatformError: of this kind: there are no credentials, or no region.
        """
        from botocore.config import Config
        from botocore.session import get_session

        parts = urlsplit(self.url)
        amazon = _AMAZON.fullmatch(parts.hostname or "")
        region = self.region or (amazon and (amazon[1] or amazon[3])) or None
        config = Config(
            connect_timeout=5,
            read_timeout=40,
            max_pool_connections=threads + 2,
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        session = get_session()
        region = region or session.get_config_variable("region") or (None if amazon else "us-east-1")
        endpoint = None if amazon else f"{parts.scheme}://{parts.netloc}"
        try:
            if session.get_credentials() is None:
                raise kind(
                    f"no AWS credentials for queue {self.name!r}",
                    remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY from a Secret, or give the pod a role (IRSA)",
                )
            return session.create_client("sqs", region_name=region, endpoint_url=endpoint, config=config)
        except self.errors() as error:
            raise self.explained(kind, "cannot be reached", error) from error

    @staticmethod
    def errors() -> tuple[type[Exception], ...]:
        """What a call raises."""
        exceptions = __import__("botocore.exceptions", fromlist=["*"])
        return exceptions.ClientError, exceptions.BotoCoreError, OSError

    def explained(self, kind: type[PlatformError], what: str, error: Exception) -> PlatformError:
        code = code_of(error)
        if any(part in code for part in _MISSING):
            told, remedy = "there is no such queue", "create it, or correct the URL: its region and account are in it"
        elif any(part in code for part in _KEYS):
            told, remedy = (
                f"the credentials are refused ({code})",
                "give the job keys, or a role, of the queue's account",
            )
        elif any(part in code for part in _RIGHTS):
            told = f"a right is missing ({code})"
            remedy = "allow sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility and sqs:GetQueueAttributes to readers, sqs:SendMessage to writers"
        elif code:
            told, remedy = f"{code}: {error}", "see what SQS says"
        else:
            told, remedy = f"{type(error).__name__}: {error}", "check the URL, the network, and that the service is up"
        return kind(f"queue {self.name!r} of {urlsplit(self.url).netloc} {what}: {told}", remedy=remedy)

    def asked(
        self, kind: type[PlatformError], what: str, call: Callable[[], R], is_over: Callable[[], bool] = lambda: False
    ) -> R:
        """What the call gives; it is tried again while that may help.

        Args:
            is_over: nobody waits any more.

        Raises:
            PlatformError: of this kind.
        """
        begun = time.monotonic()
        pause_s = 0.05
        while True:
            try:
                return call()
            except self.errors() as error:
                if not is_passing(error) or is_over() or time.monotonic() - begun > self.patience_s:
                    raise self.explained(kind, what, error) from error
                LOGGER.info("queue %r %s: %s; it is tried again", self.name, what, error)
            time.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)


def code_of(error: Exception) -> str:
    """SQS's own; empty: it was another error."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def is_passing(error: Exception) -> bool:
    """Whether another try may help."""
    code = code_of(error)
    status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if code else 0
    return not code or status >= 500 or any(part in code for part in _PASSING)
