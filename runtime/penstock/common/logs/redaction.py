"""Removal of secrets: which configuration keys name secrets, and how their values are removed from text.

Logs, exceptions, conditions, events and the configuration pages all use this module, in the engine and in the operator.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "******"
MIN_SECRET_LENGTH = 4
"""Minimum length of a value in characters. Shorter values are parts of too many words."""
_MIN_LINE_LENGTH = 8
"""Minimum length of one line of a value in characters. Shorter lines, such as a brace, are parts of too many texts."""

_SECRET = re.compile(
    r"passwords?|passwd|passphrases?|secret|token|credentials?|sasl[._-]?jaas|jaas[._-]?config|basic[._-]?auth|auth[._-]?params|"
    r"http[._-]?headers?|authorization|apikey|connection[._-]?string|"
    r"(api|access|service|private|account|master|encryption|signing|shared)[._-]?(account[._-]?)?keys?",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"[-._](file|files|path|name|provider|class|type|enabled|source|interval|timeout|ms|seconds)$", re.IGNORECASE
)
"""Ends of keys that name the location of a secret or the way to obtain it."""
_PLAIN = frozenset({"true", "false", "none", "null", "auto", "default", "user_info", "basic", "bearer", "plain"})
"""Values that are not secrets, whatever their key is. Hiding them would make texts unreadable."""
_URL = re.compile(r"\b([a-z][a-z0-9+.-]{0,30}://[^\s/?#:@]{0,256}:)([^\s/?#]{1,512})(@)", re.IGNORECASE)
_KEY = re.compile(r"""\b([A-Za-z][\w.-]{1,100})("?\s{0,2}[=:]\s{0,2}"|'?\s{0,2}[=:]\s{0,2}'|=)""")
"""Pattern of `key=value`, and of `"key": "value"` in JSON and Python. A colon without quotes does not match, because
such a text is usually prose.
"""
_VALUE = re.compile(r"""[^"'\s,;&}\])][^"'\s,;&]{0,1000}""")
_BEARER = re.compile(r"\b((?:Bearer|Basic)\s{1,2})([A-Za-z0-9._~+/=-]{8,2000})")
_PEM = re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)(.{1,20000}?)(-----END)", re.DOTALL)

_BREAKS = re.compile(r"(?:\\+[rn]|[\r\n])+")
"""Line breaks, including those that JSON or Python has escaped."""
_MARKER = re.compile(r"-----[A-Z ]{1,60}-----")
_ESCAPED_BYTE = re.compile(r"%[0-9A-F]{2}")


def is_secret(key: str) -> bool:
    """Return whether the key's value is a secret. The location of a secret is not a secret.

    >>> [is_secret(key) for key in ("s3.secret-key", "AWS_SECRET_ACCESS_KEY", "sasl.jaas.config", "basic.auth.user.info")]
    [True, True, True, True]
    >>> is_secret("security.rest.token-file"), is_secret("state.backend.type")
    (False, False)
    """
    return bool(_SECRET.search(key)) and not _NO_SECRET.search(key)


def without_secrets(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration with hidden secrets, including secrets that are parts of other values.

    >>> without_secrets({"s3.secret-key": "x", "security.rest.token-file": "/run/t", "url": "jdbc:pg://u:pw@h/db"})
    {'s3.secret-key': '******', 'security.rest.token-file': '/run/t', 'url': 'jdbc:pg://u:******@h/db'}
    """
    redaction = Redaction.of(configuration)
    return {key: HIDDEN if is_secret(key) else redaction.clean(value) for key, value in configuration.items()}


class Redaction:
    """A filter that removes known secrets from text, and values whose key in the text names a secret.

    >>> Redaction(["hunter22"]).clean("connecting with hunter22 to redis://me:other@host")
    'connecting with ****** to redis://me:******@host'
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._text: re.Pattern[str] | None = None
        self.add(secrets)

    @classmethod
    def of(cls, configuration: Mapping[str, object], *more: str) -> Redaction:
        """Return a redaction for the secrets of the configuration and of this process's environment, and for `more`."""
        named = {**os.environ, **configuration}
        found = (secret for key, value in named.items() for secret in secrets_in(key, str(value)))
        return cls([*found, *more])

    def add(self, secrets: Iterable[str]) -> None:
        found = {form for secret in secrets for form in _forms(secret) if _is_sensitive(form)}
        if found <= self._secrets:
            return
        self._secrets = self._secrets | found
        # The longest first, because one secret may be the beginning of another.
        self._text = re.compile("|".join(re.escape(secret) for secret in sorted(self._secrets, key=len, reverse=True)))

    def clean(self, text: str) -> str:
        return _without_patterns(self.hide(text))

    def hide(self, text: str) -> str:
        """Hide only the known secrets."""
        # Searching for each text separately is much faster than one pattern for all texts.
        if self._text is None or not any(secret in text for secret in self._secrets):
            return text
        return self._text.sub(HIDDEN, text)

    def clean_bytes(self, data: bytes) -> bytes:
        """Remove secrets as `clean` does. Bytes that are not valid UTF-8 do not change."""
        text = data.decode("utf-8", "surrogateescape")
        cleaned = self.clean(text)
        return data if cleaned == text else cleaned.encode("utf-8", "surrogateescape")


def hide_own(text: str) -> str:
    """Hide the secrets of this process's environment in a text that leaves the process. Other processes do not know these secrets and cannot hide them."""
    return Redaction.of({}).hide(text)


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception as Python prints it, without the secrets of this process's environment."""
    return hide_own("".join(traceback.format_exception(error)))


def secrets_in(key: str, value: str) -> Iterator[str]:
    """Yield the secrets in a setting: the whole value, or parts of it such as a password in a URL."""
    if is_secret(key):
        yield value
    if value.lstrip().startswith("{"):
        yield from _json_secrets(value)
    for found in _URL.finditer(value):
        yield from (found[2], unquote(found[2]))
    for start, end in _assigned(value):
        yield value[start:end]


def _assigned(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the values whose keys name secrets, in order."""
    done = 0
    for key in _KEY.finditer(text):
        if key.start() >= done and is_secret(key[1]) and (value := _VALUE.match(text, key.end())):
            done = value.end()
            yield value.span()


def _json_secrets(text: str) -> Iterator[str]:
    """Yield the text values of a JSON document whose keys name secrets.

    The pattern `_VALUE` would stop at a space or a comma in such a value.
    """
    try:
        pending: list[tuple[str, object]] = [("", json.loads(text))]
    except (ValueError, RecursionError):
        return
    while pending:
        key, value = pending.pop()
        if isinstance(value, dict):
            pending += value.items()
        elif isinstance(value, list):
            pending += ((key, item) for item in value)
        elif isinstance(value, str) and is_secret(key):
            yield value


def _forms(secret: str) -> Iterator[str]:
    """Yield the forms in which a text may contain a secret: unchanged, without a line break at its end, quoted,
    encoded, or each line separately."""
    yield secret
    plain = secret.strip()
    yield from _quoted(plain)
    data = plain.encode("utf-8", "surrogateescape")
    for in_url in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield from (in_url, _ESCAPED_BYTE.sub(lambda found: found[0].lower(), in_url))
    yield b64encode(data).decode().rstrip("=")
    lines = _BREAKS.split(plain)
    if len(lines) > 1:
        for line in map(str.strip, lines):
            if len(line) >= _MIN_LINE_LENGTH and not _MARKER.fullmatch(line):
                yield from _quoted(line)


def _quoted(text: str) -> Iterator[str]:
    """Yield a text as it is, and as Python and JSON write it between quotes."""
    both = "'\""  # if a text contains both kinds of quotes, Python escapes the single quotes
    data = text.encode("utf-8", "surrogateescape")
    yield from (text, repr(text)[1:-1], repr(text + both)[1:-4], ascii(text)[1:-1], repr(data)[2:-1])
    yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])


def _is_sensitive(secret: str) -> bool:
    return len(secret) >= MIN_SECRET_LENGTH and secret != HIDDEN and secret.lower() not in _PLAIN


def _without_patterns(text: str) -> str:
    if "://" in text:
        text = _URL.sub(rf"\1{HIDDEN}\3", text)
    if "=" in text or '"' in text or "'" in text:
        text = _without(text, _assigned(text))
    if "earer " in text or "asic " in text:
        text = _BEARER.sub(rf"\1{HIDDEN}", text)
    if "PRIVATE KEY" in text:
        text = _PEM.sub(rf"\1{HIDDEN}\3", text)
    return text


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts, done = [], 0
    for start, end in spans:
        parts += [text[done:start], HIDDEN]
        done = end
    return "".join([*parts, text[done:]])
