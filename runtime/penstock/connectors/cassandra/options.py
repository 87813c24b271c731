"""The options of writes: consistency, time to live, and the handling of None."""

from __future__ import annotations

from enum import Enum

from penstock.common.errors import InvalidJob


class ConsistencyLevel(Enum):
    """The number of replicas that must accept a write before it succeeds. The values are those of the protocol."""

    ANY = 0
    ONE = 1
    TWO = 2
    THREE = 3
    QUORUM = 4
    ALL = 5
    LOCAL_QUORUM = 6
    EACH_QUORUM = 7
    SERIAL = 8
    LOCAL_SERIAL = 9
    LOCAL_ONE = 10


_OF_READS = (ConsistencyLevel.SERIAL, ConsistencyLevel.LOCAL_SERIAL)


class MapperOptions:
    """
    Options of writes. `ttl` and `if_not_exists` are for a sink with a table. If you pass your own statement, write
    these settings into it.

    >>> MapperOptions().ttl(3600).consistency_level(ConsistencyLevel.QUORUM)
    MapperOptions(ttl=3600, consistency_level=QUORUM)
    """

    def __init__(self) -> None:
        self.level: ConsistencyLevel = ConsistencyLevel.LOCAL_QUORUM
        self.seconds: int | None = None
        self.written_at: int | None = None
        self.only_new = False
        self.nulls = True
        self.traced = False
        self._settings: dict[str, object] = {}

    def consistency_level(self, cl: ConsistencyLevel) -> MapperOptions:
        """Set the level. The default is LOCAL_QUORUM."""
        if not isinstance(cl, ConsistencyLevel) or cl in _OF_READS:
            raise InvalidJob(
                f"consistency_level({cl!r}) is not a consistency level of writes",
                remedy="use ConsistencyLevel.LOCAL_QUORUM, …",
            )
        self.level = cl
        return self._noted("consistency_level", cl.name)

    def ttl(self, ttl: int) -> MapperOptions:
        """Set the seconds after which written rows expire."""
        if not isinstance(ttl, int) or ttl < 0:
            raise InvalidJob(f"ttl({ttl!r})", remedy="give seconds")
        self.seconds = ttl
        return self._noted("ttl", ttl)

    def timestamp(self, timestamp: int) -> MapperOptions:
        """Set the time of all writes, in microseconds since 1970. Among rows with one key, the greatest values win instead of the last
        row."""
        self.written_at = int(timestamp)
        return self._noted("timestamp", timestamp)

    def if_not_exists(self, enabled: bool) -> MapperOptions:
        """Set whether to keep existing rows unchanged. This takes a Paxos transaction per row."""
        self.only_new = enabled
        return self._noted("if_not_exists", enabled)

    def save_null_fields(self, enabled: bool) -> MapperOptions:
        """Set whether None deletes a column's value (the default) or leaves it unchanged."""
        self.nulls = enabled
        return self._noted("save_null_fields", enabled)

    def tracing(self, enabled: bool) -> MapperOptions:
        """Set whether Cassandra records how it executes each request (`system_traces`)."""
        self.traced = enabled
        return self._noted("tracing", enabled)

    def _noted(self, name: str, value: object) -> MapperOptions:
        self._settings[name] = value
        return self

    @property
    def only_of_tables(self) -> list[str]:
        """Return the options that do not apply to the user's own statement."""
        return [*(["ttl"] if self.seconds else []), *(["if_not_exists"] if self.only_new else [])]

    def __repr__(self) -> str:
        return f"MapperOptions({', '.join(f'{name}={value}' for name, value in self._settings.items())})"
