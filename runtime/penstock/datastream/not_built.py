"""Names of PyFlink that Penstock does not implement. They can be imported. Their use raises an error that names the alternative."""

from __future__ import annotations

from typing import Any

from penstock.common.errors import InvalidJob


class NotBuilt(InvalidJob, AttributeError):
    """Error for the use of a PyFlink class that Penstock does not have. It is also an AttributeError, so `hasattr` returns False."""

    code = "NOT_BUILT"


class _Absent(type):
    instead: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise cls._error(cls.__name__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise cls._error(f"{cls.__name__}.{name}")

    def _error(cls, feature: str) -> NotBuilt:
        return NotBuilt(f"Penstock does not have {feature} of PyFlink", remedy=cls.instead)


def not_built(name: str, module: str, instead: str) -> Any:
    """Return a class with this name. A call of the class, or an access to one of its attributes, raises `NotBuilt`.

    Args:
        instead: the remedy, for the error.

    >>> PulsarSink = not_built("PulsarSink", "pulsar", "use a SinkFunction")
    >>> hasattr(PulsarSink, "builder")
    False
    """
    found = _Absent(name, (), {"__module__": module, "__doc__": f"Not available: {instead}."})
    found.instead = instead
    return found
