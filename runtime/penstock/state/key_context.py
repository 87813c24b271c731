"""The current key and namespace of a keyed operator, and a placeholder for the key in calls without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from penstock.common.errors import KeyedStateNotAvailable

if TYPE_CHECKING:
    from penstock.state.encoding.keys import KeyCodec


class NoKey:
    """The current key outside of a keyed call. Every access to keyed state hashes the key, and the hash of this object
    raises an error.

    Args:
        reason: a sentence about the place of the call, and the remedy.
    """

    __slots__ = ("_reason", "_remedy")

    def __init__(self, reason: str, remedy: str) -> None:
        self._reason = reason
        self._remedy = remedy

    @staticmethod
    def in_call(name: str) -> NoKey:
        """Return the placeholder for the key in a method that is called without a record or a timer."""
        return NoKey(
            f"{name} has no current key, so it cannot use keyed state or register timers",
            "use keyed state in methods that process a record or a timer, and operator state for values of the subtask",
        )

    def refuse(self) -> NoReturn:
        raise KeyedStateNotAvailable(self._reason, remedy=self._remedy)

    def __hash__(self) -> int:
        self.refuse()

    def __repr__(self) -> str:
        return "<no key>"


class KeyContext:
    """The current key and namespace of one keyed operator. The object is mutable, because key and namespace are set for every record."""

    __slots__ = ("key", "keys", "namespace")

    def __init__(self) -> None:
        self.keys: KeyCodec | None = None
        """Codec of the backend that stores the keys."""
        self.key: Any = NoKey.in_call("an operator that has no record yet")
        self.namespace: Any = None

    def as_restored(self, key: Any) -> Any:
        """Return the key in the form that it has after a restore by any backend. User code always sees this form."""
        return key if self.keys is None else self.keys.as_restored(key)
