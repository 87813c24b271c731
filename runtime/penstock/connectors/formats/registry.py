"""A client of Confluent's schema registry or a compatible registry (Apicurio, Karapace, Redpanda), and the head of its
messages.

Each process requests a schema once, because the schema of an id never changes.

**The wire format** is a zero byte, the id of the writer's schema (32 bits, big-endian), then the content of the format.

* A registry that does not answer is a platform error, not a malformed message. The job fails over, and no record goes to a
  side output.
* If the registry answers that it does not know the id, the message is malformed. If this were a platform error, a few foreign bytes
  could fail the job for ever.
"""

from __future__ import annotations

import base64
import json
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from typing import Any, NamedTuple

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, PlatformError, SinkError, SourceError
from penstock.connectors.formats.record_format import MalformedBlock

HEAD = struct.Struct(">bI")
_TIMEOUT_S = 5.0
_TRIES = 5
_PAUSE_S = 0.2
_NO_SUCH_SUBJECT, _NO_SUCH_VERSION, _NO_SUCH_SCHEMA = 40401, 40402, 40403
"""Error codes of the registry. A wrong address returns 404 without such a code."""
_ABSENT = (_NO_SUCH_SUBJECT, _NO_SUCH_VERSION, _NO_SUCH_SCHEMA)
_TRIES_FOR_NEW = 2
"""Number of attempts for an unknown id. A schema that was just registered may not have reached the server yet."""
_ABSENT_S = 5.0
_MOST_ABSENT = 10_000
_CONTENT = "application/vnd.schemaregistry.v1+json"
_REMEDIES = {
    401: "set user_info_file to a file with user:password",
    403: "give the user of user_info_file the right to do this",
    404: "register the schema, or correct the address. If the messages have no schema ids, read them without a registry",
    409: "the subject's compatibility rules refuse the schema: change the schema, or the rules",
    422: "the registry cannot read the schema, or does not allow it: correct the schema by its message",
}


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A redirect handler that sends passwords only to the server for which they were configured."""

    def redirect_request(self, req: urllib.request.Request, *about: Any) -> urllib.request.Request | None:
        found = super().redirect_request(req, *about)
        if found is not None and (found.type, found.host) != (req.type, req.host):
            found.remove_header("Authorization")
        return found


_OPENER = urllib.request.build_opener(_Redirects)


class SchemaAbsent(SourceError):
    """The registry's answer that a schema does not exist. So the message or subject is wrong, but the registry works."""


class Reference(NamedTuple):
    """A schema that another schema uses. `name` is the name by which the other schema refers to this schema."""

    name: str
    subject: str
    version: int


class RegisteredSchema(NamedTuple):
    """A schema as the registry stores it. `kind`: "AVRO", "PROTOBUF" or "JSON"."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"schema": self.text}
        if self.kind != "AVRO":
            document["schemaType"] = self.kind
        if self.references:
            document["references"] = [reference._asdict() for reference in self.references]
        return document


def id_of(message: bytes) -> int:
    """Return the schema id of a message.

    Raises:
        MalformedBlock: the message has no head.
    >>> id_of(bytes([0, 0, 0, 0, 7]) + b"...")
    7
    """
    if len(message) < HEAD.size or message[0]:
        raise MalformedBlock("the message does not begin with a schema id")
    return int(HEAD.unpack_from(message)[1])


class SchemaRegistry:
    """A client of a schema registry.

    Args:
        url: `http://registry:8081`; several URLs are separated by commas.
        user_info_file: a file with `user:password`, read at every request.
        registers: whether a missing schema is registered. If False, a missing schema is an error.
    """

    def __init__(self, url: str, *, user_info_file: str = "", registers: bool = True) -> None:
        self.urls = [one.strip().rstrip("/") for one in url.split(",") if one.strip()]
        if not self.urls or not all(one.startswith(("http://", "https://")) for one in self.urls):
            shown = "a URL" if "@" in url else repr(url)
            raise InvalidJob(
                f"the address of the schema registry is {shown}, not a URL",
                remedy="give a URL such as http://registry:8081",
            )
        if any("@" in urllib.parse.urlsplit(one).netloc for one in self.urls):
            raise InvalidJob(
                "the URL of the schema registry contains a user",
                remedy="leave the user out, and give SchemaRegistry(…, user_info_file=) a file with 'user:password'",
            )
        self.user_info_file = user_info_file
        self.registers = registers
        self._schemas: dict[int, RegisteredSchema] = {}
        self._absent: dict[int, tuple[float, str]] = {}
        """Ids without a schema, each with the time until which this answer is cached, and the answer's message."""

    @staticmethod
    def of(given: str | SchemaRegistry) -> SchemaRegistry:
        """Return the client for a URL, or the given client."""
        return given if isinstance(given, SchemaRegistry) else SchemaRegistry(given)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_schemas": {}, "_absent": {}}

    def schema(self, id: int, kind: str) -> RegisteredSchema:
        """Return the schema of an id.

        Raises:
            SchemaAbsent: the id has no schema, or a schema of another kind.
            SourceError: the registry does not answer, or refuses the request.
        """
        found = self._schemas.get(id)
        if found is None:
            found = self._schemas[id] = self._fetched(id)
        if found.kind != kind:
            raise SchemaAbsent(
                f"schema {id} of {self.urls[0]} is a {found.kind} schema, not {kind}",
                remedy=f"use the format of {found.kind} messages, or read a topic with {kind} messages",
            )
        return found

    def _fetched(self, id: int) -> RegisteredSchema:
        until, reason = self._absent.get(id, (0.0, ""))
        if time.monotonic() < until:
            raise SchemaAbsent(reason)
        try:
            return _schema_of(self._call("GET", f"/schemas/ids/{id}"))
        except SchemaAbsent as error:
            if len(self._absent) >= _MOST_ABSENT:
                self._absent.clear()
            self._absent[id] = time.monotonic() + _ABSENT_S, error.message
            raise

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return a version of a subject's schema.

        Raises:
            SchemaAbsent: the subject has no such version.
            SourceError: the registry does not answer, or refuses the request.
        """
        return _schema_of(self._call("GET", f"{_path(subject)}/versions/{version}"))

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the id of the schema under this subject. Register the schema if `registers` is True.

        Raises:
            SinkError: the registry does not answer, refuses the schema, or does not have the schema while `registers`
                is False.
        """
        if not self.registers:
            return _number(self.look_up(subject, schema), "id")
        path = f"{_path(subject)}/versions"
        return _number(self._call("POST", path, schema.to_json(), of=f"{subject!r}", kind=SinkError), "id")

    def refer(self, name: str, subject: str, schema: RegisteredSchema) -> Reference:
        """Return the reference by which another schema uses this schema. Register the schema if necessary.

        Raises:
            SinkError: see `register`.
        """
        if self.registers:
            self.register(subject, schema)
        return Reference(name, subject, _number(self.look_up(subject, schema), "version"))

    def look_up(self, subject: str, schema: RegisteredSchema) -> dict[str, Any]:
        """Return id and version of the subject's schema with this text, or with another text of the same meaning.

        Raises:
            SinkError: the subject has no such schema, or the registry does not answer.
        """
        first: SinkError | None = None
        for path in (_path(subject), f"{_path(subject)}?normalize=true"):
            try:
                found: dict[str, Any] = self._call("POST", path, schema.to_json(), of=f"{subject!r}", kind=SinkError)
                return found
            except _NotThere as error:
                first = first or SinkError(
                    error.message,
                    remedy=f"register the schema under {subject!r} (SchemaRegistry with registers=True does), or use a registered schema",
                )
        assert first is not None
        raise first

    def check(self, subject: str, schema: RegisteredSchema) -> None:
        """Check that the schema could be registered now. If `registers` is False, check that it exists. Write nothing.

        Raises:
            SinkError: see `register`.
        """
        if not self.registers:
            self.look_up(subject, schema)
            return
        path = f"/compatibility{_path(subject)}/versions/latest?verbose=true"
        try:
            found = self._call("POST", path, schema.to_json(), of=f"{subject!r}", kind=SinkError)
        except _NotThere:
            return  # a new subject
        if isinstance(found, dict) and not found.get("is_compatible", True):
            reason = " ".join(map(str, found.get("messages") or ["it is not compatible with the latest version"]))
            raise SinkError(
                f"the schema registry {self.urls[0]} refuses a schema of {subject!r}: {reason}", remedy=_REMEDIES[409]
            )

    def ping(self) -> None:
        """Check that the registry answers.

        Raises:
            SourceError: the registry does not answer, or refuses the request.
        """
        self._call("GET", "/schemas/types")

    def _call(
        self, method: str, path: str, body: Any = None, *, of: str = "", kind: type[PlatformError] = SourceError
    ) -> Any:
        """Return the registry's answer. Retry with the next server, after a pause, while a retry may help.

        Args:
            of: the subject, for error messages.
            kind: the class of the errors.

        Raises:
            SchemaAbsent, _NotThere: the registry has no such schema, subject or version.
            PlatformError: the registry refuses the request, or does not answer.
        """
        reason = ""
        for number in range(_TRIES):
            url = self.urls[number % len(self.urls)]
            try:
                with _OPENER.open(self._request(method, url + path, body), timeout=_TIMEOUT_S) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                answer = _error_of(error)
                reason = f"{error.code} {answer['message']}"
                if answer.get("error_code") in _ABSENT:
                    if method == "POST" or number + 1 >= _TRIES_FOR_NEW:
                        absent = _NotThere if method == "POST" else SchemaAbsent
                        raise self._refused(f"{method} {path}", error.code, reason, of, absent) from error
                elif error.code < 500 and error.code != 429:
                    raise self._refused(f"{method} {path}", error.code, reason, of, kind) from error
            except (OSError, ValueError, HTTPException) as error:
                reason = f"{type(error).__name__}: {error}"
            time.sleep(_PAUSE_S * 2**number)
        about = f" for {of}" if of else ""
        raise kind(
            f"the schema registry {', '.join(self.urls)} does not answer {method} {path}{about}: {reason}",
            remedy="check that the registry runs, and check its address",
        )

    def _request(self, method: str, url: str, body: Any) -> urllib.request.Request:
        headers = {"Accept": _CONTENT, "Content-Type": _CONTENT}
        if self.user_info_file:
            user_info = read_secret(self.user_info_file, "user_info_file").encode()
            headers["Authorization"] = f"Basic {base64.b64encode(user_info).decode()}"
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(url, data, headers, method=method)

    def _refused(self, request: str, code: int, reason: str, of: str, kind: type[PlatformError]) -> PlatformError:
        subject = f"a schema of {of}" if of else request
        return kind(
            f"the schema registry {self.urls[0]} refuses {subject}: {reason}",
            remedy=_REMEDIES.get(code, "see the registry's log"),
        )


class _NotThere(SinkError):
    """The error that a subject does not have the requested schema."""


def _path(subject: str) -> str:
    return f"/subjects/{urllib.parse.quote(subject, safe='')}"


def _schema_of(answer: Any) -> RegisteredSchema:
    """Return the schema in an answer.

    Raises:
        SourceError: the server that answers is not a schema registry.
    """
    try:
        return RegisteredSchema(
            answer.get("schemaType") or "AVRO",
            answer["schema"],
            tuple(
                Reference(one["name"], one["subject"], int(one["version"])) for one in answer.get("references") or ()
            ),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _strange(SourceError, answer) from error


def _number(answer: Any, name: str) -> int:
    """Return a number in an answer.

    Raises:
        SinkError: the server that answers is not a schema registry.
    """
    try:
        return int(answer[name])
    except (KeyError, TypeError, ValueError) as error:
        raise _strange(SinkError, answer) from error


def _strange(kind: type[PlatformError], answer: Any) -> PlatformError:
    return kind(
        f"the server at the schema registry's address is not a registry. It responds {str(answer)[:200]!r}",
        remedy="correct the address, such as http://registry:8081",
    )


def _error_of(error: urllib.error.HTTPError) -> dict[str, Any]:
    """Return the error in an answer, with a `message`. If the answer has no such field, `message` is the answer's text."""
    try:
        text = error.read().decode(errors="replace")
    except (OSError, HTTPException):
        return {"message": error.reason}
    try:
        answer = json.loads(text)
        return {**answer, "message": answer["message"]}
    except (ValueError, KeyError, TypeError):
        return {"message": text[:200]}
