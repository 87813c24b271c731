"""Configuration that may be shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HIDDEN = "******"

_SECRET = re.compile(r"password|secret|token|fs\.azure\.account\.key|access[.-]key|apikey|auth-params", re.IGNORECASE)
_NAME_OF_FILE = re.compile(r"[-.](file|path|name)$", re.IGNORECASE)


def without_secrets(configuration: Mapping[str, str]) -> dict[str, str]:
    """The same with what could be a secret hidden; where a secret lies is none.

    >>> without_secrets({"s3.secret-key": "x", "security.rest.token-file": "/run/t"})
    {'s3.secret-key': '******', 'security.rest.token-file': '/run/t'}
    """
    return {key: HIDDEN if is_secret(key) else value for key, value in configuration.items()}


def is_secret(key: str) -> bool:
    return bool(_SECRET.search(key)) and not _NAME_OF_FILE.search(key)
