"""Sessions of S3's client that know S3 and no more, and share what they know.

botocore describes each service in JSON, 12 MB of objects in a process that uses S3: endpoints of 400 services in all regions, a hundred
operations with the text of their documentation. A fifteenth of it is of use here. What is left is kept once in a process and those that are
forked from it, for all sessions; it is small because the forked ones get a copy of their own of whatever they look at (looking counts references).
So it is with the certificates of the authorities that servers are held against, 3 MB for each client that reads them for itself.
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
"""S3, and where credentials come from."""
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
"""What s3fs can ask of S3; and what its client asks by itself, of buckets in one zone (S3 Express)."""


def prepare() -> None:
    """Load what every process with S3 has: the modules, and what botocore knows of it.

    For a process that others are forked from: no connection is opened, and no thread started.
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
    """What is said to each client: arguments of aiobotocore's `AioConfig`."""
    return {"http_session_cls": _Connections}


class _Connections(AIOHTTPSession):  # type: ignore[misc]  # as below
    """Connections under one context, if there is nothing that is a client's own in it."""

    def _build_ssl_contexts(self, proxy_url: str | None) -> tuple[ssl.SSLContext, ssl.SSLContext | None]:
        if proxy_url or self._cert_file or not isinstance(self._verify, bool | str):
            own: tuple[ssl.SSLContext, ssl.SSLContext | None] = super()._build_ssl_contexts(proxy_url)
            return own
        return _verified(self._verify), None


@lru_cache
def _verified(verify: bool | str) -> ssl.SSLContext:
    """
    Args:
        verify: a file of certificates, or whether servers are held against those that botocore brings.
    """
    context: ssl.SSLContext = AIOHTTPSession(verify=verify)._build_verify_context()
    return context


def shared_session() -> AioSession:
    """The session of this process for file systems that say nothing of one; it finds credentials where every AWS SDK does."""
    return _session_of(os.getpid())


@lru_cache(maxsize=1)
def _session_of(process: int) -> AioSession:
    return new_session()


@lru_cache
def _descriptions(path: str | None) -> Any:
    """Those of this process, for one setting of where botocore looks for more."""
    loader = create_loader(path)
    loader.file_loader = _Needed()
    return loader


class _Needed(JSONFileLoader):  # type: ignore[misc]  # botocore has no types
    """Reads descriptions, and leaves out what s3fs has no use for: it is not even made into objects, whose places would stay empty."""

    def _load_file(self, full_path: str, open_method: Callable[..., Any]) -> Any:
        if not os.path.isfile(full_path):
            return None
        with open_method(full_path, "rb") as file:
            return _needed(full_path.removesuffix(".gz").removesuffix(".json"), file.read())


def _needed(path: str, content: bytes) -> Any:
    """Of a description.

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
    """With the shapes that they use. Those of errors stay: an answer may have any."""
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
    """Shapes may have members of that name: those are not text."""
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
