"""The code that clients of Amazon's services share: credentials, the causes of errors, and retries. The clients are those of botocore.

botocore finds the credentials in the usual places: environment variables, a web identity (IRSA), files, the machine's role.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.common.errors import PlatformError
from penstock.common.program.extras import import_extra

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
"""Errors for an answer that lacks an expected field. botocore returns such an answer for half a response, or for a web page."""


@dataclass(frozen=True)
class AwsTarget:
    """A queue or a stream that a connector reads or writes.

    Args:
        service: botocore's name of the service.
        shown: how errors name the target: "queue 'orders'".
        extra: the extra of Penstock's package that installs botocore.
        region: the AWS region; the environment's region if empty.
        endpoint: the URL of the service; None means Amazon's endpoint of the region.
        missing: parts of error codes. An error code with one of these parts means that the target does not exist.
        rights: the permissions that the job needs.
        patience_s: how many seconds calls are retried while the service is unreachable or overloaded.
    """

    service: str
    shown: str
    extra: str
    region: str = ""
    endpoint: str | None = None
    missing: tuple[str, ...] = ()
    rights: str = ""
    patience_s: float = 30.0
    logger: logging.Logger = field(default=logging.getLogger("penstock.connectors.core.aws"), compare=False)

    def __post_init__(self) -> None:
        import_extra("botocore", self.extra, f"the {self.extra} connector")

    def client(self, kind: type[PlatformError], threads: int = 1) -> Any:
        """Return a botocore client of the service.

        Raises:
            PlatformError: (class `kind`) there are no credentials or no region.
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
        session.register_component("data_loader", _descriptions(session.get_config_variable("data_path")))
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

    def explained(self, kind: type[PlatformError], problem: str, error: Exception) -> PlatformError:
        code = code_of(error)
        if any(part in code for part in self.missing):
            reason, remedy = "it does not exist", "create it, or correct its name, region or account"
        elif any(part in code for part in _KEYS):
            reason, remedy = f"the credentials are refused ({code})", "use keys, or a role, of the account that owns it"
        elif any(part in code for part in _RIGHTS):
            reason, remedy = f"a right is missing ({code})", f"allow {self.rights}"
        elif isinstance(error, _NO_ANSWER):
            reason = f"the server is not {self.service}, or its answer is incomplete: {type(error).__name__}: {error}"
            remedy = "correct the endpoint, and check whether a proxy answers in place of the server"
        elif code:
            reason, remedy = f"{code}: {error}", f"see the documentation of {self.service} for this error"
        else:
            reason = f"{type(error).__name__}: {error}"
            remedy = "check region, endpoint and network, and that the service is up"
        where = self.endpoint or self.region or "AWS"
        return kind(f"{self.shown} ({where}) {problem}: {reason}", remedy=remedy)

    def retry(
        self,
        kind: type[PlatformError],
        problem: str,
        call: Callable[[], R],
        is_over: Callable[[], bool] = lambda: False,
    ) -> R:
        """Execute `call` and return its result. Retry while a retry may help.

        `call` must extract every field it needs from the answer, so that an incomplete answer counts as an error.

        Args:
            is_over: returns True when the caller no longer needs the result. The call is then not retried.

        Raises:
            PlatformError: (class `kind`) the call failed, and a retry cannot help or came too late.
        """
        started = time.monotonic()
        pause_s = 0.05
        while True:
            try:
                return call()
            except errors() + _NO_ANSWER as error:
                if not is_passing(error) or is_over() or time.monotonic() - started > self.patience_s:
                    raise self.explained(kind, problem, error) from error
                self.logger.info("%s %s: %s; retrying", self.shown, problem, error)
            time.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)


@lru_cache(maxsize=8)
def _descriptions(data_path: str | None) -> Any:
    """Return the loader of botocore's descriptions of services. All clients share it, because parsing takes 0.1 s."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


def errors() -> tuple[type[Exception], ...]:
    """Return the exception classes that a botocore call raises."""
    from botocore.exceptions import BotoCoreError, ClientError

    return ClientError, BotoCoreError, OSError


def code_of(error: Exception) -> str:
    """Return the service's error code, or "" if the error does not come from the service."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def is_passing(error: Exception) -> bool:
    """Return True if a retry may help."""
    from botocore.exceptions import ParamValidationError

    if isinstance(error, ParamValidationError):
        return False
    code = code_of(error)
    status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if code else 0
    return not code or status >= 500 or any(part in code for part in _PASSING)
