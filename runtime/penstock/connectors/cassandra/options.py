"""What can be set of writes: consistency, time to live, what becomes of None."""

from __future__ import annotations

from enum import Enum

from penstock.common.errors import InvalidJob


class ConsistencyLevel(Enum):
    """How many replicas must have taken a write before it counts. The values are the protocol's."""

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
    How rows are written. `ttl` and `if_not_exists` are for a sink that was given a table; into a statement of your own write them yourself.

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
        self._given: dict[str, object] = {}

    def consistency_level(self, cl: ConsistencyLevel) -> MapperOptions:
        """LOCAL_QUORUM unless given."""
        if not isinstance(cl, ConsistencyLevel) or cl in _OF_READS:
            raise InvalidJob(f"consistency_level({cl!r}) of a write", remedy="give ConsistencyLevel.LOCAL_QUORUM, …")
        self.level = cl
        return self._noted("consistency_level", cl.name)

    def ttl(self, ttl: int) -> MapperOptions:
        """Seconds after which what was written is gone."""
        if not isinstance(ttl, int) or ttl < 0:
            raise InvalidJob(f"ttl({ttl!r})", remedy="give seconds")
        self.seconds = ttl
        return self._noted("ttl", ttl)

    def timestamp(self, timestamp: int) -> MapperOptions:
        """Microseconds since 1970 as the time of all writes. Of rows with one key the one with the greatest values then stands, not the last one."""
        self.written_at = int(timestamp)
        return self._noted("timestamp", timestamp)

    def if_not_exists(self, enabled: bool) -> MapperOptions:
        """Leave rows that are there as they are: a transaction of Paxos for each row."""
        self.only_new = enabled
        return self._noted("if_not_exists", enabled)

    def save_null_fields(self, enabled: bool) -> MapperOptions:
        """Whether None removes what a column has (the default), or leaves it as it is."""
        self.nulls = enabled
        return self._noted("save_null_fields", enabled)

    def tracing(self, enabled: bool) -> MapperOptions:
        """Have Cassandra write down how it carried out each request (`system_traces`)."""
        self.traced = enabled
        return self._noted("tracing", enabled)

    def _noted(self, name: str, value: object) -> MapperOptions:
        self._given[name] = value
        return self

    @property
    def only_of_tables(self) -> list[str]:
        """What was set that a statement of the user's own has to say itself."""
        return [*(["ttl"] if self.seconds else []), *(["if_not_exists"] if self.only_new else [])]

    def __repr__(self) -> str:
        return f"MapperOptions({', '.join(f'{name}={value}' for name, value in self._given.items())})"
