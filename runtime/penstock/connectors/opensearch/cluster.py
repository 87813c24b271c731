"""Requests to the nodes of a cluster in turn, and the meaning of the nodes' errors."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, SinkError
from penstock.common.folders.start_folder import absolute

_OLDEST_ELASTICSEARCH = 7
_PORTS = {"http": 9200, "https": 443}
"""Default ports, the same as in the servers' own Python clients."""
_SHOWN = 300
_AWAY = "check that the servers run, and check hosts, ports and the network; the job retries when it fails over"
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_LEADS_ELSEWHERE = frozenset({301, 302, 303, 307, 308})
TOO_LARGE = 413


class Lost(SinkError):
    """A missing answer, or an error that may be temporary."""


@dataclass(frozen=True, repr=False)
class Cluster:
    """The cluster's hosts and credentials. It is picklable.

    Args:
        hosts: URLs ("https://search-1:9200"), which may have a path. The default scheme is http. The default port is 9200, or 443 for https.
        password: the password as text. Prefer `password_file`, because the job's payload contains the value of `password`.
        api_key_file: the file with an encoded API key.
        ca_file: the certificates to trust instead of the system's.
        timeout_s: the time in seconds after which a request without an answer counts as lost.
    """

    hosts: tuple[str, ...]
    user: str = ""
    password: str = ""
    password_file: str = ""
    api_key_file: str = ""
    ca_file: str = ""
    connect_timeout_s: float = 5.0
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if bool(self.user) != bool(self.password or self.password_file):
            raise InvalidJob(
                "OpenSearch's user and password belong together", remedy="pass user= and password_file=, or neither"
            )
        if self.user and self.api_key_file:
            raise InvalidJob("user= and api_key_file= of OpenSearch exclude each other", remedy="pass one of them")

    def __repr__(self) -> str:
        return f"Cluster({self.shown})"

    @property
    def shown(self) -> str:
        return f"OpenSearch {', '.join(_place(host) for host in self.hosts)}"

    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request.

        Raises:
            SinkError: a file with a secret cannot be read.
        """
        if self.api_key_file:
            return {"Authorization": f"ApiKey {read_secret(self.api_key_file, 'api_key_file', SinkError)}"}
        if not self.user:
            return {}
        password = read_secret(self.password_file, "password_file", SinkError) if self.password_file else self.password
        return {"Authorization": f"Basic {base64.b64encode(f'{self.user}:{password}'.encode()).decode()}"}


def cluster_of(hosts: str | Sequence[str], **options: Any) -> Cluster:
    """Return the cluster with these hosts.

    Raises:
        InvalidJob: no host is given, or a host is invalid.
    """
    urls = [hosts] if isinstance(hosts, str) else list(hosts)
    if not urls:
        raise InvalidJob("an OpenSearch sink needs at least one host", remedy="pass 'https://search-1:9200'")
    return Cluster(tuple(_url(host) for host in urls), **options)


def _url(host: str) -> str:
    url = host if "://" in host else f"http://{host}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or "@" in parts.netloc:
        raise InvalidJob(
            f"the host {host.rpartition('@')[2]!r} of OpenSearch is invalid",
            remedy="write 'https://search-1:9200', and user= and password_file= for a user",
        )
    place = parts.netloc if port else f"{parts.netloc}:{_PORTS[parts.scheme]}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def _place(url: str) -> str:
    return url.partition("://")[2]


class Connection:
    """The connection of one subtask. It is not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._turn = 0
        try:
            self._http = httpx.Client(
                timeout=httpx.Timeout(cluster.timeout_s, connect=cluster.connect_timeout_s),
                verify=_trust(cluster.ca_file),
            )
        except (OSError, ValueError) as error:
            raise SinkError(
                f"ca_file={cluster.ca_file!r} cannot be read: {error}", remedy="mount certificates in PEM there"
            ) from error

    def ask(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        """Return a node's answer. The next call uses the next node.

        Raises:
            Lost: no answer, or a temporary error.
            SinkError: the node refuses access.
        """
        hosts = self.cluster.hosts
        host, self._turn = hosts[self._turn % len(hosts)], self._turn + 1
        where = f"OpenSearch {_place(host)}"
        headers = self.cluster.headers()
        if content is not None:
            headers["Content-Type"] = "application/x-ndjson"
        try:
            answer = self._http.request(method, host + path, content=content, headers=headers)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                raise SinkError(
                    f"{where}: {reason}",
                    remedy="set ca_file= to the certificate of the server's CA, or correct the host",
                ) from error
            raise Lost(f"{where}: {reason}", remedy=_AWAY) from error
        status, text = answer.status_code, answer.text[:_SHOWN]
        if status in _PASSING:
            raise Lost(f"{where} returned the status {status}: {text}", remedy=_AWAY)
        if status in (401, 403):
            raise SinkError(
                f"{where} returned the status {status}: {text}",
                remedy="check user= and password_file= (or api_key_file=), and grant the user write and create_index on the indices",
            )
        if not answer.is_success and status != TOO_LARGE:
            remedy = (
                "pass the address of the server itself, to which the request was redirected"
                if status in _LEADS_ELSEWHERE
                else "check the hosts, and their path"
            )
            raise SinkError(f"{where} returned the status {status}: {text}", remedy=remedy)
        return answer

    def check(self) -> None:
        """Check that one of the nodes answers, and that its version is supported.

        Raises:
            SinkError: no node answers or grants access, or a node runs another product or a version that is too old.
        """
        lost: Lost | None = None
        for _ in self.cluster.hosts:
            try:
                self._check_version(self.ask("GET", "/"))
            except Lost as error:
                lost = error
            else:
                return
        raise lost or SinkError("no host", remedy=_AWAY)

    def _check_version(self, answer: httpx.Response) -> None:
        about = as_json(answer)
        version = about.get("version") if isinstance(about, dict) else None
        if not isinstance(version, dict) or "number" not in version:
            raise not_opensearch(answer)
        first = str(version["number"]).partition(".")[0]
        is_elastic = version.get("distribution") != "opensearch"
        if is_elastic and first.isdigit() and int(first) < _OLDEST_ELASTICSEARCH:
            raise SinkError(
                f"{self.cluster.shown} is Elasticsearch {version['number']}",
                remedy="use OpenSearch, or Elasticsearch 7 or later",
            )

    def close(self) -> None:
        self._http.close()


def _trust(ca_file: str) -> Any:
    if not ca_file:
        return True
    import ssl

    return ssl.create_default_context(cafile=str(absolute(ca_file)))


def as_json(answer: httpx.Response) -> Any:
    try:
        return orjson.loads(answer.content)
    except ValueError:
        return None


def not_opensearch(answer: httpx.Response) -> SinkError:
    return SinkError(
        f"the server at {_place(str(answer.request.url))} is not OpenSearch: {answer.text[:100]!r}",
        remedy="check hosts and ports, and the path if it is behind a proxy",
    )
