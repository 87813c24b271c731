"""A client of Confluent's schema registry, or of what speaks its REST API (Apicurio, Karapace, Redpanda), and the head of its messages.

Schemas are asked for once by each process: an id's schema never changes.

**The wire format**: a zero byte, the id of the writer's schema (32 bits, big-endian), then what the format puts there. A registry that does not
answer is an error of the platform's and not of a message: the job fails over, nothing goes to a side output. One that knows no such id is an
answer: the message is malformed, else a few bytes of a stranger's would end the job for ever.
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

from penstock.common.errors import InvalidJob, PlatformError, SinkError, SourceError
from penstock.common.secret_file import read_secret
from penstock.connectors.formats.record_format import MalformedBlock

HEAD = struct.Struct(">bI")
_TIMEOUT_S = 5.0
_TRIES = 5
_PAUSE_S = 0.2
_NO_SUCH_SUBJECT, _NO_SUCH_VERSION, _NO_SUCH_SCHEMA = 40401, 40402, 40403
"""The registry's codes; an address that is wrong gives 404 without one."""
_ABSENT = (_NO_SUCH_SUBJECT, _NO_SUCH_VERSION, _NO_SUCH_SCHEMA)
_TRIES_FOR_NEW = 2
"""A schema that was registered a moment ago may not have come to the server that is asked."""
_ABSENT_S = 5.0
_MOST_ABSENT = 10_000
_CONTENT = "application/vnd.schemaregistry.v1+json"
_REMEDIES = {
    401: "give user and password: user_info_file",
    403: "give this user the right to do it",
    404: "register the schema, or correct the address; messages without a registry have no ids",
    409: "the schema is not compatible with those before it, by the subject's rules: change it, or the rules",
    422: "the registry cannot read the schema, or does not allow it: see what it says of it",
}


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Passwords go to no other server than the one they were given for."""

    def redirect_request(self, req: urllib.request.Request, *about: Any) -> urllib.request.Request | None:
        found = super().redirect_request(req, *about)
        if found is not None and (found.type, found.host) != (req.type, req.host):
            found.remove_header("Authorization")
        return found


_OPENER = urllib.request.build_opener(_Redirects)


class SchemaAbsent(SourceError):
    """The registry has answered: it has no such schema. So whoever names it is mistaken, and nothing is away."""


class Reference(NamedTuple):
    """A schema that another one uses, by the `name` that it has there."""

    name: str
    subject: str
    version: int


class RegisteredSchema(NamedTuple):
    """As the registry has it. `kind`: "AVRO", "PROTOBUF" or "JSON"."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"schema": self.text}
        if self.kind != "AVRO":
            told["schemaType"] = self.kind
        if self.references:
            told["references"] = [reference._asdict() for reference in self.references]
        return told


def id_of(message: bytes) -> int:
    """
    Raises:
        MalformedBlock: the message has no head.

    >>> id_of(bytes([0, 0, 0, 0, 7]) + b"...")
    7
    """
    if len(message) < HEAD.size or message[0]:
        raise MalformedBlock("it does not begin with a schema's id")
    return int(HEAD.unpack_from(message)[1])


class SchemaRegistry:
    """
    Args:
        url: `http://registry:8081`; several with commas between them.
        user_info_file: a file with `user:password`, read at every request.
        registers: a schema that the registry does not have is registered; else that is an error.
    """

    def __init__(self, url: str, *, user_info_file: str = "", registers: bool = True) -> None:
        self.urls = [one.strip().rstrip("/") for one in url.split(",") if one.strip()]
        if not self.urls or not all(one.startswith(("http://", "https://")) for one in self.urls):
            shown = "a URL" if "@" in url else repr(url)
            raise InvalidJob(f"schema registry at {shown}", remedy="give a URL such as http://registry:8081")
        if any("@" in urllib.parse.urlsplit(one).netloc for one in self.urls):
            raise InvalidJob(
                "a URL of a schema registry with a user in it",
                remedy="leave it out, and give SchemaRegistry(…, user_info_file=) a file with 'user:password'",
            )
        self.user_info_file = user_info_file
        self.registers = registers
        self._schemas: dict[int, RegisteredSchema] = {}
        self._absent: dict[int, tuple[float, str]] = {}
        """Ids that there are no schemas of: until when that is believed, and what was said."""

    @staticmethod
    def of(given: str | SchemaRegistry) -> SchemaRegistry:
        """Of its URL, or as it is."""
        return given if isinstance(given, SchemaRegistry) else SchemaRegistry(given)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_schemas": {}, "_absent": {}}

    def schema(self, id: int, kind: str) -> RegisteredSchema:
        """
        Raises:
            SchemaAbsent: there is none of this id, or it is of another kind.
            SourceError: the registry does not answer, or refuses to.
        """
        found = self._schemas.get(id)
        if found is None:
            found = self._schemas[id] = self._asked(id)
        if found.kind != kind:
            raise SchemaAbsent(
                f"schema {id} of {self.urls[0]} is a {found.kind} schema, not {kind}", remedy="read another topic"
            )
        return found

    def _asked(self, id: int) -> RegisteredSchema:
        until, said = self._absent.get(id, (0.0, ""))
        if time.monotonic() < until:
            raise SchemaAbsent(said)
        try:
            return _told(self._ask("GET", f"/schemas/ids/{id}"))
        except SchemaAbsent as error:
            if len(self._absent) >= _MOST_ABSENT:
                self._absent.clear()
            self._absent[id] = time.monotonic() + _ABSENT_S, error.message
            raise

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """
        Raises:
            SchemaAbsent: the subject has no such version.
            SourceError: the registry does not answer, or refuses to.
        """
        return _told(self._ask("GET", f"{_path(subject)}/versions/{version}"))

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """The id of the schema under this subject.

        Raises:
            SinkError: the registry refuses it, or does not have it and must not get it, or does not answer.
        """
        if not self.registers:
            return _number(self.look_up(subject, schema), "id")
        path = f"{_path(subject)}/versions"
        return _number(self._ask("POST", path, schema.to_json(), of=f"{subject!r}", kind=SinkError), "id")

    def refer(self, name: str, subject: str, schema: RegisteredSchema) -> Reference:
        """What another schema says to use this one, which is registered if it has to be.

        Raises:
            SinkError: as `register`.
        """
        if self.registers:
            self.register(subject, schema)
        return Reference(name, subject, _number(self.look_up(subject, schema), "version"))

    def look_up(self, subject: str, schema: RegisteredSchema) -> dict[str, Any]:
        """Id and version of a schema that the subject has, in this text or in another that means the same.

        Raises:
            SinkError: it has none such, or the registry does not answer.
        """
        said: SinkError | None = None
        for path in (_path(subject), f"{_path(subject)}?normalize=true"):
            try:
                found: dict[str, Any] = self._ask("POST", path, schema.to_json(), of=f"{subject!r}", kind=SinkError)
                return found
            except _NotThere as error:
                said = said or SinkError(
                    error.message,
                    remedy=f"register the schema under {subject!r} (a SchemaRegistry that registers does), or give the one that is there",
                )
        assert said is not None
        raise said

    def check(self, subject: str, schema: RegisteredSchema) -> None:
        """Whether the schema could be registered now, or is there where it must be; nothing is written.

        Raises:
            SinkError: as `register`.
        """
        if not self.registers:
            self.look_up(subject, schema)
            return
        path = f"/compatibility{_path(subject)}/versions/latest?verbose=true"
        try:
            found = self._ask("POST", path, schema.to_json(), of=f"{subject!r}", kind=SinkError)
        except _NotThere:
            return  # a new subject
        if isinstance(found, dict) and not found.get("is_compatible", True):
            reason = " ".join(map(str, found.get("messages") or ["it is not compatible with the latest version"]))
            raise SinkError(
                f"the schema registry {self.urls[0]} refuses a schema of {subject!r}: {reason}", remedy=_REMEDIES[409]
            )

    def ping(self) -> None:
        """
        Raises:
            SourceError: the registry does not answer, or refuses to.
        """
        self._ask("GET", "/schemas/types")

    def _ask(
        self, method: str, path: str, body: Any = None, *, of: str = "", kind: type[PlatformError] = SourceError
    ) -> Any:
        """The answer; another server is asked, and again after a pause, while the reason may pass.

        Args:
            of: the subject, for messages to people.
            kind: of the errors.

        Raises:
            SchemaAbsent, _NotThere: the registry has no such schema, subject or version.
            PlatformError: it refuses, or does not answer.
        """
        reason = ""
        for number in range(_TRIES):
            url = self.urls[number % len(self.urls)]
            try:
                with _OPENER.open(self._request(method, url + path, body), timeout=_TIMEOUT_S) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                said = _said(error)
                reason = f"{error.code} {said['message']}"
                if said.get("error_code") in _ABSENT:
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
            remedy="check its address and that it runs",
        )

    def _request(self, method: str, url: str, body: Any) -> urllib.request.Request:
        headers = {"Accept": _CONTENT, "Content-Type": _CONTENT}
        if self.user_info_file:
            user_info = read_secret(self.user_info_file, "user_info_file").encode()
            headers["Authorization"] = f"Basic {base64.b64encode(user_info).decode()}"
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(url, data, headers, method=method)

    def _refused(self, asked: str, code: int, reason: str, of: str, kind: type[PlatformError]) -> PlatformError:
        what = f"a schema of {of}" if of else asked
        return kind(
            f"the schema registry {self.urls[0]} refuses {what}: {reason}",
            remedy=_REMEDIES.get(code, "see what the registry's log says"),
        )


class _NotThere(SinkError):
    """The subject does not have the schema that it was asked for."""


def _path(subject: str) -> str:
    return f"/subjects/{urllib.parse.quote(subject, safe='')}"


def _told(answer: Any) -> RegisteredSchema:
    """
    Raises:
        SourceError: what answers is no schema registry.
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
    """
    Raises:
        SinkError: what answers is no schema registry.
    """
    try:
        return int(answer[name])
    except (KeyError, TypeError, ValueError) as error:
        raise _strange(SinkError, answer) from error


def _strange(kind: type[PlatformError], answer: Any) -> PlatformError:
    return kind(
        f"what answers for a schema registry says {str(answer)[:200]!r}",
        remedy="correct its address, such as http://registry:8081",
    )


def _said(error: urllib.error.HTTPError) -> dict[str, Any]:
    """With a `message`, if only the answer's text."""
    try:
        text = error.read().decode(errors="replace")
    except (OSError, HTTPException):
        return {"message": error.reason}
    try:
        said = json.loads(text)
        return {**said, "message": said["message"]}
    except (ValueError, KeyError, TypeError):
        return {"message": text[:200]}
