"""Sessions of the S3 client that load only the descriptions of S3, and share these descriptions.

botocore describes each service in JSON. In a process that uses S3, these descriptions are 12 MB of objects. They
contain the endpoints of 400 services in all regions, and a hundred operations with their documentation. S3 needs a
fifteenth of these objects.

The needed part is loaded once, for all sessions of a process and of the processes forked from it. This part must be
small, because a forked process gets its own copy of every object that it uses (reference counts change). The CA
certificates are shared in the same way. A client that loads them itself needs 3 MB.
"""

from __future__ import annotations

import asyncio
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.loaders import JSONFileLoader, create_loader
from msgspec import Raw

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

_SERVICES = frozenset({"s3", "sts", "sso", "portal.sso", "oidc", "signin"})
"""S3, and the services that provide credentials."""
OPERATIONS = frozenset(
    {
        "AbortMultipartUpload",
        "CompleteMultipartUpload",
        "CopyObject",
        "CreateBucket",
        "CreateMultipartUpload",
        "CreateSession",
        "DeleteBucket",
        "DeleteObject",
        "DeleteObjects",
        "GetBucketLocation",
        "GetBucketVersioning",
        "GetObject",
        "GetObjectTagging",
        "HeadBucket",
        "HeadObject",
        "ListBuckets",
        "ListMultipartUploads",
        "ListObjectVersions",
        "ListObjects",
        "ListObjectsV2",
        "ListParts",
        "PutBucketAcl",
        "PutBucketVersioning",
        "PutObject",
        "PutObjectAcl",
        "PutObjectTagging",
        "UploadPart",
        "UploadPartCopy",
    }
)
"""Operations that s3fs uses, and operations that the S3 client itself uses for buckets in one zone (S3 Express)."""


def prepare() -> None:
    """Load what every process with S3 needs: the modules and botocore's descriptions.

    Call this in a process from which other processes are forked. The function opens no connection and starts no thread.
    """
    import s3fs  # noqa: F401

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_make_client())
    finally:
        loop.close()


async def _make_client() -> None:
    keys = {"aws_access_key_id": "nobody", "aws_secret_access_key": "nothing"}
    config = AioConfig(**client_config())
    async with new_session().create_client("s3", region_name="us-east-1", config=config, **keys) as client:
        client._endpoint.http_session._build_ssl_contexts(None)


def new_session(profile: str | None = None) -> AioSession:
    session = AioSession(profile=profile)
    session.lazy_register_component("data_loader", lambda: _descriptions(session.get_config_variable("data_path")))
    return session


def client_config() -> dict[str, Any]:
    """Return the arguments of aiobotocore's `AioConfig` for each client."""
    return {"http_session_cls": _Connections}


class _Connections(AIOHTTPSession):  # type: ignore[misc]  # as below
    """Connections that share one TLS context, if the client has no separate context settings."""

    def _build_ssl_contexts(self, proxy_url: str | None) -> tuple[ssl.SSLContext, ssl.SSLContext | None]:
        if proxy_url or self._cert_file or not isinstance(self._verify, bool | str):
            contexts: tuple[ssl.SSLContext, ssl.SSLContext | None] = super()._build_ssl_contexts(proxy_url)
            return contexts
        return _verified(self._verify), None


@lru_cache
def _verified(verify: bool | str) -> ssl.SSLContext:
    """Return a TLS context.

    Args:
        verify: a file of certificates, or whether to verify servers with botocore's certificates.
    """
    context: ssl.SSLContext = AIOHTTPSession(verify=verify)._build_verify_context()
    return context


def shared_session() -> AioSession:
    """Return the session of this process for file systems that set no session. The session finds credentials in the
    same places as every AWS SDK.
    """
    return _session_of(os.getpid())


@lru_cache(maxsize=1)
def _session_of(process: int) -> AioSession:
    return new_session()


@lru_cache
def _descriptions(path: str | None) -> Any:
    """Return the descriptions of this process for one setting of botocore's extra search path."""
    loader = create_loader(path)
    loader.file_loader = _Needed()
    return loader


class _Needed(JSONFileLoader):  # type: ignore[misc]  # botocore has no types
    """A loader that leaves out descriptions that s3fs does not need. No objects are created for them, so no gaps remain in memory."""

    def _load_file(self, full_path: str, open_method: Callable[..., Any]) -> Any:
        if not os.path.isfile(full_path):
            return None
        with open_method(full_path, "rb") as file:
            return _needed(full_path.removesuffix(".gz").removesuffix(".json"), file.read())


def _needed(path: str, content: bytes) -> Any:
    """Return the needed part of a description.

    >>> _needed("/data/endpoints", b'{"partitions": [{"services": {"s3": {}, "ec2": {}}}], "version": 3}')
    {'partitions': [{'services': {'s3': {}}}], 'version': 3}
    """
    *_, service, _, kind = ("", "", *path.split(os.sep))
    if kind == "endpoints":
        found = msgspec.json.decode(content, type=dict[str, Raw])
        partitions = [
            _of_services(part) for part in msgspec.json.decode(found.pop("partitions"), type=list[dict[str, Raw]])
        ]
        return {"partitions": partitions, **{key: msgspec.json.decode(of) for key, of in found.items()}}
    if kind == "service-2" and service == "s3":
        return _without_text(_of_operations(msgspec.json.decode(content, type=dict[str, Raw])))
    return _without_text(msgspec.json.decode(content)) if kind == "service-2" else msgspec.json.decode(content)


def _of_services(partition: dict[str, Raw]) -> dict[str, Any]:
    services = msgspec.json.decode(partition.pop("services"), type=dict[str, Raw])
    return {
        **{key: msgspec.json.decode(of) for key, of in partition.items()},
        "services": {key: msgspec.json.decode(of) for key, of in services.items() if key in _SERVICES},
    }


def _of_operations(description: dict[str, Raw]) -> dict[str, Any]:
    """Return the description with the needed operations and their shapes. All error shapes are kept, because any answer
    may be an error.
    """
    every = msgspec.json.decode(description.pop("operations"), type=dict[str, Raw])
    raw = msgspec.json.decode(description.pop("shapes"), type=dict[str, Raw])
    operations = {key: msgspec.json.decode(of) for key, of in every.items() if key in OPERATIONS}
    shapes = {key: msgspec.json.decode(of) for key, of in raw.items() if b'"exception"' in bytes(of)}
    waiting: list[Any] = [operations, *shapes.values()]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            name = part.get("shape")
            if isinstance(name, str) and name not in shapes:
                shapes[name] = msgspec.json.decode(raw[name])
                waiting.append(shapes[name])
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    rest = {key: msgspec.json.decode(of) for key, of in description.items()}
    return {**rest, "operations": operations, "shapes": shapes}


def _without_text(description: Any) -> Any:
    """Return a description without documentation. A shape may have a member that is called `documentation`. Such a
    member is kept.
    """
    parts: Any = ()
    if isinstance(description, dict):
        if isinstance(description.get("documentation"), str):
            description["documentation"] = ""
        parts = description.values()
    elif isinstance(description, list):
        parts = description
    for part in parts:
        _without_text(part)
    return description
