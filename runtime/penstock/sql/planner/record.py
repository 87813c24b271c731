"""`PlanRecord`: the planner's answers of a session. A later run of the same program uses them instead of the planner.

The manifest of a job has the record. After a restart or a restore, the program makes the same requests in the same order. Each request then has
its recorded answer, so no Java process starts. The first request without an answer starts the process, which first repeats the requests that
changed the session.

A recorded plan also stays if Penstock or Flink has a new version. So the nodes of the plan keep their state.

Options such as passwords are not recorded. A reference to the literal in the statement replaces them. A later run reads the current value.
The description of a node is recorded without hints, because the hint OPTIONS shows its options.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from penstock.common.logs.redaction import is_secret
from penstock.sql.plan.source import without_hints

_OPTION = re.compile(r"'((?:[^']|'')*)'(\s*=\s*)'((?:[^']|'')*)'")
_REFERENCE = re.compile(r"\$literal:(\d+:\d+(?:,\d+:\d+)*)$")
_PASSWORD_IN_URL = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_QUOTE = "'"
_TEXTS = ("rows", "text")
"""Parts of an answer that are texts for a person."""
_UNCHANGED = ("described", "explained", "insert", "query")
"""Kinds of answers to requests that do not change the session."""
MAX_BYTES = 1 << 20
"""Size of a record above which it is not stored, because every manifest contains the record."""

Request = dict[str, str]


class _NotRecordable(Exception):
    """An answer with a secret that is in no literal of the statements, or whose literals now differ."""


class PlanRecord:
    """The requests of a session and their answers.

    Args:
        recall: function that returns the answers of an earlier run by key. It is called at the first request.
    """

    def __init__(self, recall: Callable[[], Mapping[str, Any]] = dict) -> None:
        self._recall = recall
        self._recalled: Mapping[str, Any] | None = None
        self._answers: dict[str, Any] = {}
        self._chain = ""
        self._secrets: list[list[str]] = []
        """Secrets of each earlier request, in the order of its text."""
        self.repeated: list[Request] = []
        """Requests that a new planner process must repeat."""

    def answer(self, request: Request) -> dict[str, Any] | None:
        """Return the recorded answer to the next request, or None if the record has no answer."""
        if self._recalled is None:
            self._recalled = self._recall()
        found = self._recalled.get(self._key(request))
        if not isinstance(found, dict) or "kind" not in found:
            return None
        self._secrets.append(_secrets_of(request))
        try:
            answer: dict[str, Any] = _mapped(found, self._with_secret)
        except (_NotRecordable, IndexError):
            return None
        finally:
            self._secrets.pop()
        if "plan" in answer:
            answer["plan"] = json.dumps(answer["plan"], indent=2)
        self._keep(request, answer, found)
        return answer

    def add(self, request: Request, answer: dict[str, Any]) -> None:
        """Record the planner's answer to the next request."""
        self._secrets.append(_secrets_of(request))
        try:
            parsed = {**answer, "plan": json.loads(answer["plan"])} if "plan" in answer else answer
            recorded = _mapped(parsed, self._without_secret)
        except _NotRecordable:
            recorded = None
        self._secrets.pop()
        self._keep(request, answer, recorded)

    def stored(self) -> dict[str, Any]:
        """Return the answers by key for the manifest. Return an empty dict if they are too large."""
        return self._answers if len(json.dumps(self._answers)) <= MAX_BYTES else {}

    def _key(self, request: Request) -> str:
        text = json.dumps({name: _masked(value) for name, value in request.items()}, sort_keys=True)
        return hashlib.sha256(f"{self._chain}\n{text}".encode()).hexdigest()[:32]

    def _keep(self, request: Request, answer: dict[str, Any], recorded: dict[str, Any] | None) -> None:
        self._chain = self._key(request)
        self._secrets.append(_secrets_of(request))
        if recorded is not None:
            self._answers[self._chain] = recorded
        if answer["kind"] not in _UNCHANGED:
            self.repeated.append(request)

    def _without_secret(self, key: str, value: str) -> str:
        if _REFERENCE.match(value) or (key in _TEXTS and self._shows_secret(value)):
            raise _NotRecordable
        if key == "description":
            return without_hints(value)
        if not value or not _is_secret(key, value):
            return value
        places = [
            f"{number}:{index}"
            for number, secrets in enumerate(self._secrets)
            for index, secret in enumerate(secrets)
            if secret == value
        ]
        if not places:
            raise _NotRecordable
        return f"$literal:{','.join(places)}"

    def _shows_secret(self, text: str) -> bool:
        """Return whether a text shows an option with a secret, as SHOW CREATE TABLE and EXPLAIN do."""
        known = {secret for secrets in self._secrets for secret in secrets if secret}
        return any(f"={secret}" in text or f"'{secret.replace(_QUOTE, _QUOTE * 2)}'" in text for secret in known)

    def _with_secret(self, key: str, value: str) -> str:
        found = _REFERENCE.match(value)
        if found is None:
            return value
        places = [place.split(":") for place in found[1].split(",")]
        secrets = {self._secrets[int(number)][int(index)] for number, index in places}
        if len(secrets) > 1:  # literals that were equal have different values now
            raise _NotRecordable
        return secrets.pop()


def _secrets_of(request: Request) -> list[str]:
    found = []
    for value in request.values():
        found += [m[3].replace("''", "'") for m in _OPTION.finditer(value) if _is_secret(m[1], m[3])]
    return found


def _is_secret(key: str, value: str) -> bool:
    return is_secret(key) or _PASSWORD_IN_URL.search(value) is not None


def _masked(text: str) -> str:
    """Return a statement without the values of secret options. Such a value may change without a new plan.

    >>> _masked("WITH ('topic' = 'a', 'properties.sasl.password' = 'b')")
    "WITH ('topic' = 'a', 'properties.sasl.password' = '')"
    """
    return _OPTION.sub(lambda m: f"'{m[1]}'{m[2]}''" if _is_secret(m[1], m[3]) else m[0], text)


def _mapped(value: Any, change: Callable[[str, str], str], key: str = "") -> Any:
    """Return a copy in which `change` has replaced each text, given the key of the text."""
    if isinstance(value, dict):
        return {name: _mapped(part, change, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_mapped(part, change, key) for part in value]
    return change(key, value) if isinstance(value, str) else value
