"""Requests to the nodes of a cluster, in turn, and what their refusals mean."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.folders.start_folder import absolute
from penstock.common.secret_file import read_secret

_OLDEST_ELASTICSEARCH = 7
_PORTS = {"http": 9200, "https": 443}
"""As the servers' own Python clients have them."""
_SHOWN = 300
_AWAY = "check that the servers run, hosts, ports and the network; the job tries again when it fails over"
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_LEADS_ELSEWHERE = frozenset({301, 302, 303, 307, 308})
TOO_LARGE = 413


class Lost(SinkError):
    """No answer, or one that may be another in a moment."""


@dataclass(frozen=True, repr=False)
class Cluster:
    """Where, and as whom. Picklable.

    Args:
        hosts: URLs ("https://search-1:9200"), also with a path; without a scheme it is http, without a port 9200, of https 443.
        password: better in `password_file`: this one is in the job's payload.
        api_key_file: holds an encoded API key.
        ca_file: certificates that are trusted instead of the system's.
        timeout_s: until a request without an answer counts as lost.
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
                "OpenSearch's user and password belong together", remedy="give user= and password_file=, or neither"
            )
        if self.user and self.api_key_file:
            raise InvalidJob("both user= and api_key_file= of OpenSearch", remedy="give one of the two")

    def __repr__(self) -> str:
        return f"Cluster({self.shown})"

    @property
    def shown(self) -> str:
        return f"OpenSearch {', '.join(_place(host) for host in self.hosts)}"

    def headers(self) -> dict[str, str]:
        """
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
    """
    Raises:
        InvalidJob: no host, or none that can be understood.
    """
    given = [hosts] if isinstance(hosts, str) else list(hosts)
    if not given:
        raise InvalidJob("an OpenSearch sink without hosts", remedy="give it 'https://search-1:9200'")
    return Cluster(tuple(_url(host) for host in given), **options)


def _url(host: str) -> str:
    url = host if "://" in host else f"http://{host}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or "@" in parts.netloc:
        raise InvalidJob(
            f"the host {host.rpartition('@')[2]!r} of OpenSearch cannot be understood",
            remedy="write 'https://search-1:9200', and user= and password_file= for a user",
        )
    place = parts.netloc if port else f"{parts.netloc}:{_PORTS[parts.scheme]}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def _place(url: str) -> str:
    return url.partition("://")[2]


class Connection:
    """One subtask's. Not for several threads."""

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
        """What a node answers; the next call asks the next one.

        Raises:
            Lost: it may answer in a moment.
            SinkError: it does not let us.
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
            told = str(error) or type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in told:
                raise SinkError(
                    f"{where}: {told}", remedy="name its authority's certificate (ca_file=), or correct the host"
                ) from error
            raise Lost(f"{where}: {told}", remedy=_AWAY) from error
        status, text = answer.status_code, answer.text[:_SHOWN]
        if status in _PASSING:
            raise Lost(f"{where} answers {status}: {text}", remedy=_AWAY)
        if status in (401, 403):
            raise SinkError(
                f"{where} answers {status}: {text}",
                remedy="check user= and password_file= (or api_key_file=), and grant the user the indices: write, create_index",
            )
        if not answer.is_success and status != TOO_LARGE:
            remedy = "name the server itself" if status in _LEADS_ELSEWHERE else "check the hosts, and their path"
            raise SinkError(f"{where} answers {status}: {text}", remedy=remedy)
        return answer

    def check(self) -> None:
        """
        Raises:
            SinkError: no node answers or lets us; or they are something else, or too old.
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
            raise stranger(answer)
        first = str(version["number"]).partition(".")[0]
        is_elastic = version.get("distribution") != "opensearch"
        if is_elastic and first.isdigit() and int(first) < _OLDEST_ELASTICSEARCH:
            raise SinkError(
                f"{self.cluster.shown} is Elasticsearch {version['number']}",
                remedy="documents are written to OpenSearch, and to Elasticsearch 7 and later",
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


def stranger(answer: httpx.Response) -> SinkError:
    return SinkError(
        f"what answers at {_place(str(answer.request.url))} is no OpenSearch: {answer.text[:100]!r}",
        remedy="check hosts and ports, and the path if it is behind a proxy",
    )
