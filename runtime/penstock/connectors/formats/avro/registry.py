"""A client of Confluent's schema registry, or of what speaks its REST API (Redpanda, Karapace, Apicurio).

Schemas are asked for once by each process: an id's schema never changes.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from penstock.common.errors import InvalidJob, PlatformError, SourceError
from penstock.common.secret_file import read_secret
from penstock.connectors.formats.avro.schema import AvroSchema

_TIMEOUT_S = 10.0
_TRIES = 5
_PAUSE_S = 0.2
_NO_SUCH_SCHEMA = 40403
"""The registry's code; an address that is wrong gives 404 without it."""
_TRIES_FOR_NEW = 2
"""A schema that was registered a moment ago may not have come to the server that is asked."""
_ABSENT_S = 60.0
_MOST_ABSENT = 10_000
_CONTENT = "application/vnd.schemaregistry.v1+json"


class SchemaAbsent(SourceError):
    """The registry has answered: it has no Avro schema of this id. So whoever names it is mistaken, and nothing is away."""


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
            raise InvalidJob(f"schema registry at {url!r}", remedy="give a URL such as http://registry:8081")
        self.user_info_file = user_info_file
        self.registers = registers
        self._schemas: dict[int, AvroSchema] = {}
        self._absent: dict[int, tuple[float, str]] = {}
        """Ids that there are no schemas of: until when that is believed, and what was said."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_schemas": {}, "_absent": {}}

    def schema(self, id: int) -> AvroSchema:
        """
        Raises:
            SchemaAbsent: there is none of this id, or it is not Avro.
            SourceError: the registry does not answer, or refuses to.
        """
        if id not in self._schemas:
            until, said = self._absent.get(id, (0.0, ""))
            if time.monotonic() < until:
                raise SchemaAbsent(said)
            try:
                self._schemas[id] = self._assembled(self._ask("GET", f"/schemas/ids/{id}"), f"schema {id}")
            except SchemaAbsent as error:
                if len(self._absent) >= _MOST_ABSENT:
                    self._absent.clear()
                self._absent[id] = time.monotonic() + _ABSENT_S, error.message
                raise
        return self._schemas[id]

    def register(self, subject: str, schema: AvroSchema) -> int:
        """The id of the schema under this subject.

        Raises:
            SourceError: the registry refuses it, or does not have it and must not get it, or does not answer.
        """
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}"
        return int(self._ask("POST", f"{path}/versions" if self.registers else path, {"schema": schema.text})["id"])

    def _assembled(self, found: dict[str, Any], what: str) -> AvroSchema:
        """With the schemas that it refers to put in."""
        kind = found.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise SchemaAbsent(f"{what} of {self.urls[0]} is a {kind} schema, not Avro", remedy="read another topic")
        named: dict[str, Any] = {}
        self._name(found.get("references") or [], named)
        return AvroSchema(json.dumps(_inlined(json.loads(found["schema"]), "", named)) if named else found["schema"])

    def _name(self, references: list[dict[str, Any]], named: dict[str, Any]) -> None:
        for reference in references:
            subject = urllib.parse.quote(reference["subject"], safe="")
            found = self._ask("GET", f"/subjects/{subject}/versions/{reference['version']}")
            self._name(found.get("references") or [], named)
            named[reference["name"]] = {**json.loads(found["schema"]), "name": reference["name"]}

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer; another server is asked, and again after a pause, while the reason may pass."""
        reason = ""
        for number in range(_TRIES):
            url = self.urls[number % len(self.urls)]
            try:
                with urllib.request.urlopen(self._request(method, url + path, body), timeout=_TIMEOUT_S) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                said = _said(error)
                reason = f"{error.code} {said['message']}"
                is_absent = said.get("error_code") == _NO_SUCH_SCHEMA
                if is_absent and method == "GET":
                    if number + 1 >= _TRIES_FOR_NEW:
                        raise self._refused(method, path, error.code, reason, SchemaAbsent) from error
                elif error.code < 500 and error.code != 429:
                    raise self._refused(method, path, error.code, reason) from error
            except (OSError, ValueError) as error:
                reason = str(error)
            time.sleep(_PAUSE_S * 2**number)
        raise SourceError(
            f"the schema registry {', '.join(self.urls)} does not answer {method} {path}: {reason}",
            remedy="check its address and that it runs",
        )

    def _request(self, method: str, url: str, body: Any) -> urllib.request.Request:
        headers = {"Accept": _CONTENT, "Content-Type": _CONTENT}
        if self.user_info_file:
            user_info = read_secret(self.user_info_file, "user_info_file").encode()
            headers["Authorization"] = f"Basic {base64.b64encode(user_info).decode()}"
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(url, data, headers, method=method)

    def _refused(
        self, method: str, path: str, code: int, reason: str, kind: type[SourceError] = SourceError
    ) -> PlatformError:
        remedies = {
            401: "give user and password: user_info_file",
            403: "give this user the right to do it",
            404: "register the schema, or correct the address; messages without a registry have no ids",
            409: "the schema is not compatible with those before it, by the subject's rules: change it, or the rules",
        }
        return kind(
            f"the schema registry {self.urls[0]} refuses {method} {path}: {reason}",
            remedy=remedies.get(code, "see what the registry's log says"),
        )


def _said(error: urllib.error.HTTPError) -> dict[str, Any]:
    """With a `message`, if only the answer's text."""
    text = error.read().decode(errors="replace")
    try:
        said = json.loads(text)
        return {**said, "message": said["message"]}
    except (ValueError, KeyError, TypeError):
        return {"message": text[:200]}


def _inlined(schema: Any, namespace: str, named: dict[str, Any]) -> Any:
    """With the definitions of `named` where they are met first.

    >>> inner = {"type": "record", "name": "a.In", "fields": []}
    >>> _inlined({"type": "record", "name": "a.R", "fields": [{"name": "x", "type": ["null", "In"]}]}, "", {"a.In": inner})
    {'type': 'record', 'name': 'a.R', 'fields': [{'name': 'x', 'type': ['null', {'type': 'record', 'name': 'a.In', 'fields': []}]}]}
    """
    if isinstance(schema, str):
        name = next((one for one in (schema, f"{namespace}.{schema}") if one in named), "")
        return _inlined(named.pop(name), namespace, named) if name else schema
    if isinstance(schema, list):
        return [_inlined(one, namespace, named) for one in schema]
    before = schema.get("name", "").rpartition(".")[0]
    namespace = before or schema.get("namespace", namespace)
    whole = dict(schema)
    for part in ("type", "items", "values"):
        if part in whole:
            whole[part] = _inlined(whole[part], namespace, named)
    if "fields" in whole:
        whole["fields"] = [{**field, "type": _inlined(field["type"], namespace, named)} for field in whole["fields"]]
    return whole
