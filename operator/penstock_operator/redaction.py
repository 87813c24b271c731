"""Redaction of secrets in conditions, events and logs. It uses the redaction of the engine."""

from __future__ import annotations

from functools import lru_cache

from penstock.common.logs.redaction import Redaction, secrets_in


@lru_cache(maxsize=1)
def _known() -> Redaction:
    """Return the redaction with the secrets of this process's environment, which does not change."""
    return Redaction.of({})


def without_secrets(text: str) -> str:
    """Return the text with `******` for passwords in URLs, values of secret keys, bearer tokens and the operator's own secrets.

    >>> without_secrets("cannot read s3://bucket: secret_access_key=abcdef, proxy http://me:pw1234@proxy")
    'cannot read s3://bucket: secret_access_key=******, proxy http://me:******@proxy'
    """
    return _known().clean(text)


def holds_secret(key: str, value: str) -> bool:
    """Return whether a setting is a secret or contains a secret, such as a password in a URL."""
    return any(secrets_in(key, value))
