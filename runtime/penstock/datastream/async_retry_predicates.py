"""Predefined predicates for the retries of async functions.

>>> empty_result_predicate([]), has_exception_predicate(None), exception_type_predicate(ValueError(), ValueError)
(True, False, True)
"""

from __future__ import annotations

from typing import Any


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Return True if there are no results. The call is then retried."""
    return result is None or len(result) == 0


def has_exception_predicate(error: BaseException | None) -> bool:
    """Return True if the call failed. The call is then retried."""
    return error is not None


def exception_type_predicate(error: BaseException | None, expected_error_type: type[BaseException]) -> bool:
    """Return True if the failure has this type. The call is then retried. Bind the type with `functools.partial`."""
    return isinstance(error, expected_error_type)
