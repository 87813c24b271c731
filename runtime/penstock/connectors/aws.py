"""What clients of Amazon's services share: who they are, what refusals mean, whether another try would help. By botocore.

Credentials are found as by every AWS client: variables, a web identity (IRSA), files, the machine's role.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.common.errors import PlatformError
from penstock.common.extras import module_of_extra

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
_KEYS = (
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
    "ExpiredToken",
    "InvalidSecurity",
    "AuthFailure",
)
_RIGHTS = ("AccessDenied", "UnauthorizedOperation", "NotAuthorized", "KMS.AccessDenied")
_PASSING = (
    *(
        "Throttl",
        "TooManyRequests",
        "ServiceUnavailable",
        "InternalError",
        "InternalFailure",
        "RequestTimeout",
        "OverLimit",
    ),
    *("ProvisionedThroughputExceeded", "LimitExceeded"),
)
_LONGEST_PAUSE_S = 3.0
_NO_ANSWER: tuple[type[Exception], ...] = (LookupError, AttributeError, TypeError, ValueError)
"""What comes of an answer without what it should have: botocore gives one also for half an answer, or a web page."""


@dataclass(frozen=True)
class AwsTarget:
    """A queue, a stream: what a connector reads or writes.

    Args:
        service: botocore's name.
        shown: in errors: "queue 'orders'".
        extra: that has botocore.
        region: that of the environment unless given.
        endpoint: URL; None: Amazon's of that region.
        missing: parts of the codes with which the service says that there is no such thing.
        rights: which the job needs.
        patience_s: how long the service may be lost, overloaded or not answering.
    """

    service: str
    shown: str
    extra: str
    region: str = ""
    endpoint: str | None = None
    missing: tuple[str, ...] = ()
    rights: str = ""
    patience_s: float = 30.0
    logger: logging.Logger = field(default=logging.getLogger("penstock.connectors.aws"), compare=False)

    def __post_init__(self) -> None:
        module_of_extra("botocore", self.extra, f"the {self.extra} connector")

    def client(self, kind: type[PlatformError], threads: int = 1) -> Any:
        """
        Raises:
            PlatformError: of this kind: there are no credentials, or no region.
        """
        from botocore.config import Config
        from botocore.session import get_session

        config = Config(
            connect_timeout=5,
            read_timeout=40,
            max_pool_connections=threads + 2,
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        session = get_session()
        region = self.region or session.get_config_variable("region") or (self.endpoint and "us-east-1")
        try:
            if session.get_credentials() is None:
                raise kind(
                    f"no AWS credentials for {self.shown}",
                    remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY from a Secret, or give the pod a role (IRSA)",
                )
            return session.create_client(self.service, region_name=region, endpoint_url=self.endpoint, config=config)
        except errors() as error:
            raise self.explained(kind, "cannot be reached", error) from error

    def explained(self, kind: type[PlatformError], what: str, error: Exception) -> PlatformError:
        code = code_of(error)
        if any(part in code for part in self.missing):
            told, remedy = "there is none of that name", "create it, or correct its name, region or account"
        elif any(part in code for part in _KEYS):
            told, remedy = f"the credentials are refused ({code})", "give the job keys, or a role, of its account"
        elif any(part in code for part in _RIGHTS):
            told, remedy = f"a right is missing ({code})", f"allow {self.rights}"
        elif isinstance(error, _NO_ANSWER):
            told = f"what answers there is not {self.service}, or answers by halves: {type(error).__name__}: {error}"
            remedy = "correct the endpoint, and look for a proxy that answers instead"
        elif code:
            told, remedy = f"{code}: {error}", f"see what {self.service} says"
        else:
            told = f"{type(error).__name__}: {error}"
            remedy = "check region, endpoint and network, and that the service is up"
        where = self.endpoint or self.region or "AWS"
        return kind(f"{self.shown} ({where}) {what}: {told}", remedy=remedy)

    def asked(
        self, kind: type[PlatformError], what: str, call: Callable[[], R], is_over: Callable[[], bool] = lambda: False
    ) -> R:
        """What the call gives; it is tried again while that may help. What the call takes out of an answer must be there.

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
            except errors() + _NO_ANSWER as error:
                if not is_passing(error) or is_over() or time.monotonic() - begun > self.patience_s:
                    raise self.explained(kind, what, error) from error
                self.logger.info("%s %s: %s; it is tried again", self.shown, what, error)
            time.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)


def errors() -> tuple[type[Exception], ...]:
    """What a call raises."""
    from botocore.exceptions import BotoCoreError, ClientError

    return ClientError, BotoCoreError, OSError


def code_of(error: Exception) -> str:
    """The service's own; empty: it was another error."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def is_passing(error: Exception) -> bool:
    """Whether another try may help."""
    from botocore.exceptions import ParamValidationError

    if isinstance(error, ParamValidationError):
        return False
    code = code_of(error)
    status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if code else 0
    return not code or status >= 500 or any(part in code for part in _PASSING)
