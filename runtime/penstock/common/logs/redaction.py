"""What may not be shown: which configuration keys name secrets, and how their values are taken out of text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

HIDDEN = "******"
LEAST = 4
"""Characters of a value; shorter ones are parts of too many words."""

_SECRET = re.compile(r"password|secret|token|fs\.azure\.account\.key|access[._-]key|apikey|auth-params", re.IGNORECASE)
_NAME_OF_FILE = re.compile(r"[-._](file|path|name)$", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Whether what stands under the key may not be shown; where a secret lies is none.

    >>> is_secret("s3.secret-key"), is_secret("AWS_SECRET_ACCESS_KEY"), is_secret("security.rest.token-file")
    (True, True, False)
    """
    return bool(_SECRET.search(key)) and not _NAME_OF_FILE.search(key)


def without_secrets(configuration: Mapping[str, str]) -> dict[str, str]:
    """The same with what could be a secret hidden.

    >>> without_secrets({"s3.secret-key": "x", "security.rest.token-file": "/run/t"})
    {'s3.secret-key': '******', 'security.rest.token-file': '/run/t'}
    """
    return {key: HIDDEN if is_secret(key) else value for key, value in configuration.items()}


class Redaction:
    """Takes known secrets out of text, wherever they come from.

    >>> Redaction(["hunter22"]).clean("password=hunter22")
    'password=******'
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._text: re.Pattern[str] | None = None
        self._bytes: re.Pattern[bytes] | None = None
        self.add(secrets)

    @classmethod
    def of(cls, configuration: Mapping[str, object], *more: str) -> Redaction:
        """Of what the configuration and this process's environment say under names of secrets, and of others."""
        named = {**os.environ, **configuration}
        return cls([*(str(value) for key, value in named.items() if is_secret(key)), *more])

    def add(self, secrets: Iterable[str]) -> None:
        found = {secret for secret in secrets if len(secret) >= LEAST and secret != HIDDEN}
        if found <= self._secrets:
            return
        self._secrets = self._secrets | found
        # The longest first: one may be the beginning of another.
        pattern = "|".join(re.escape(secret) for secret in sorted(self._secrets, key=len, reverse=True))
        self._text, self._bytes = re.compile(pattern), re.compile(pattern.encode())

    def clean(self, text: str) -> str:
        return text if self._text is None else self._text.sub(HIDDEN, text)

    def clean_bytes(self, data: bytes) -> bytes:
        return data if self._bytes is None else self._bytes.sub(HIDDEN.encode(), data)
