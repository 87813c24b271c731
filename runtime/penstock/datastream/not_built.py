"""Names of PyFlink's that import, and say what to use instead when they are used: what they stand for is not built."""

from __future__ import annotations

from typing import Any

from penstock.common.errors import InvalidJob


class NotBuilt(InvalidJob, AttributeError):
    """A class of PyFlink's was used that Penstock does not have. An AttributeError, too: `hasattr` is False."""

    code = "NOT_BUILT"


class _Absent(type):
    instead: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise cls._error(cls.__name__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise cls._error(f"{cls.__name__}.{name}")

    def _error(cls, what: str) -> NotBuilt:
        return NotBuilt(f"{what} of PyFlink is not there in Penstock", remedy=cls.instead)


def not_built(name: str, module: str, instead: str) -> Any:
    """A class of that name; calling it, or asking it for anything, raises `NotBuilt`.

    Args:
        instead: what to do, in the error.

    >>> PulsarSink = not_built("PulsarSink", "pulsar", "use a SinkFunction")
    >>> hasattr(PulsarSink, "builder")
    False
    """
    found = _Absent(name, (), {"__module__": module, "__doc__": f"Not built: {instead}."})
    found.instead = instead
    return found
