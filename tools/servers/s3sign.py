"""One signed S3 request with the standard library, for a test server before any S3 client is installed.

The request uses AWS Signature Version 4, "Authenticating Requests: Using the Authorization Header". It has a path-style URL,
no query and an unsigned payload. This is enough to create and find buckets. Use a real client for objects.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
from dataclasses import dataclass
from urllib.parse import urlsplit

PAYLOAD = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True)
class Credentials:
    """An access key pair and the region of the signatures."""

    access_key: str
    secret_key: str
    region: str = "us-east-1"


def request(
    endpoint_url: str, credentials: Credentials, method: str, path: str, *, timeout: float = 10.0
) -> tuple[int, bytes]:
    """Send one signed request without a body. Return the HTTP status and the body of the response.

    ``path`` begins with ``/`` and needs no escaping. ``timeout`` is in seconds. Raises ``OSError`` if the server
    cannot be reached.
    """
    url = urlsplit(endpoint_url)
    headers = sign(url.netloc, credentials, method, path, datetime.datetime.now(datetime.UTC))
    connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = connect(url.netloc, timeout=timeout)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def sign(host: str, credentials: Credentials, method: str, path: str, moment: datetime.datetime) -> dict[str, str]:
    """Return the headers of a signed request. ``moment`` is in UTC."""
    timestamp = moment.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{timestamp[:8]}/{credentials.region}/s3/aws4_request"
    headers = {"host": host, "x-amz-content-sha256": PAYLOAD, "x-amz-date": timestamp}
    signed = ";".join(headers)
    canonical = "\n".join(
        [method, path, "", *(f"{name}:{value}" for name, value in headers.items()), "", signed, PAYLOAD]
    )
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{timestamp}\n{scope}\n{digest}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
    )
    return {**headers, "authorization": authorization}
