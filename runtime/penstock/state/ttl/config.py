"""Time-to-live of state: how long an entry lives, which accesses renew it, and whether an expired entry is visible.

The names are PyFlink's, and programs import them from `penstock.state.descriptors`. Most programs need none of these
classes: every descriptor takes `ttl=timedelta(...)`, which is the configuration with all defaults.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from penstock.common.errors import InvalidJob
from penstock.common.time import Duration, TimeLike, as_millis

if TYPE_CHECKING:
    from datetime import timedelta


class CleanupStrategies:
    """The ways to remove expired entries that are not read.

    >>> config = StateTtlConfig.new_builder(Duration.of_hours(1)).cleanup_incrementally(10, True).build()
    >>> strategy = config.get_cleanup_strategies().get_incremental_cleanup_strategy()
    >>> strategy.get_cleanup_size(), strategy.run_cleanup_for_every_record()
    (10, True)
    """

    class Strategies(Enum):
        FULL_STATE_SCAN_SNAPSHOT = 0
        INCREMENTAL_CLEANUP = 1
        ROCKSDB_COMPACTION_FILTER = 2

    class CleanupStrategy:
        """Base of the strategies."""

    class EmptyCleanupStrategy(CleanupStrategy):
        """A strategy without parameters."""

    EMPTY_STRATEGY: ClassVar[EmptyCleanupStrategy] = EmptyCleanupStrategy()

    class IncrementalCleanupStrategy(CleanupStrategy):
        """A strategy that checks some more entries with every access and, if configured, with every record."""

        def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
            if cleanup_size <= 0:
                raise InvalidJob(f"cleanup_size must be positive, not {cleanup_size}")
            self._cleanup_size = cleanup_size
            self._run_cleanup_for_every_record = run_cleanup_for_every_record

        def get_cleanup_size(self) -> int:
            """Return the number of entries checked each time."""
            return self._cleanup_size

        def run_cleanup_for_every_record(self) -> bool:
            return self._run_cleanup_for_every_record

    class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
        """A strategy without effect, for programs written for Flink.

        The RocksDB backend uses the incremental strategy instead.
        """

        def __init__(
            self, query_time_after_num_entries: int, periodic_compaction_time: timedelta | None = None
        ) -> None:
            self._query_time_after_num_entries = query_time_after_num_entries
            self._periodic_compaction_time = (
                Duration.of_days(30) if periodic_compaction_time is None else periodic_compaction_time
            )

        def get_query_time_after_num_entries(self) -> int:
            return self._query_time_after_num_entries

        def get_periodic_compaction_time(self) -> timedelta:
            return self._periodic_compaction_time

    def __init__(self, strategies: dict[Strategies, CleanupStrategy], is_cleanup_in_background: bool) -> None:
        self._strategies = strategies
        self._is_cleanup_in_background = is_cleanup_in_background

    def is_cleanup_in_background(self) -> bool:
        return self._is_cleanup_in_background

    def in_full_snapshot(self) -> bool:
        return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        """Return the strategy.

        The default checks five entries with each access. None means that accesses check no other entries.
        """
        strategy = self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP)
        if strategy is None and self._is_cleanup_in_background:
            return self.IncrementalCleanupStrategy(5, False)
        return strategy if isinstance(strategy, self.IncrementalCleanupStrategy) else None

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
        strategy = self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER)
        if strategy is None and self._is_cleanup_in_background:
            return self.RocksdbCompactFilterCleanupStrategy(1000)
        return strategy if isinstance(strategy, self.RocksdbCompactFilterCleanupStrategy) else None


_Cleanup = CleanupStrategies


class StateTtlConfig:
    """The time-to-live of a state's entries.

    Args:
        update_type: the accesses that renew an entry.
        state_visibility: whether an expired entry that still exists may be read.
        ttl_time_characteristic: the clock. Processing time is the only clock, as in Flink.
        ttl: the time-to-live: a timedelta, Duration, Time, or ms.
        cleanup_strategies: how expired entries that are not read are removed.

    >>> config = StateTtlConfig.new_builder(Duration.of_minutes(5)).update_ttl_on_read_and_write().build()
    >>> config.ttl_ms, config.renews_on_read, config.returns_expired
    (300000, True, False)
    """

    class UpdateType(Enum):
        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        ProcessingTime = 0

    CleanupStrategies = CleanupStrategies

    def __init__(
        self,
        update_type: UpdateType,
        state_visibility: StateVisibility,
        ttl_time_characteristic: TtlTimeCharacteristic,
        ttl: TimeLike,
        cleanup_strategies: _Cleanup,
    ) -> None:
        self.ttl_ms = as_millis(ttl, "ttl")
        if update_type is not self.UpdateType.Disabled and self.ttl_ms <= 0:
            raise InvalidJob(
                f"a state's ttl must be positive, not {ttl}", remedy="write for example timedelta(hours=1)"
            )
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: TimeLike) -> StateTtlConfig.Builder:
        return StateTtlConfig.Builder(ttl)

    @staticmethod
    def of(ttl: TimeLike | StateTtlConfig) -> StateTtlConfig:
        """Return the configuration for a descriptor's `ttl=`. A length of time gets the default settings."""
        return ttl if isinstance(ttl, StateTtlConfig) else StateTtlConfig.new_builder(ttl).build()

    def get_update_type(self) -> UpdateType:
        return self._update_type

    def get_state_visibility(self) -> StateVisibility:
        return self._state_visibility

    def get_ttl(self) -> Duration:
        return Duration.of_millis(self.ttl_ms)

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        return self._update_type is not self.UpdateType.Disabled

    def get_cleanup_strategies(self) -> _Cleanup:
        return self._cleanup_strategies

    @property
    def renews_on_read(self) -> bool:
        return self._update_type is self.UpdateType.OnReadAndWrite

    @property
    def returns_expired(self) -> bool:
        return self._state_visibility is self.StateVisibility.ReturnExpiredIfNotCleanedUp

    def __repr__(self) -> str:
        return f"StateTtlConfig({self.get_ttl()}, {self._update_type.name}, {self._state_visibility.name})"

    class Builder:
        """The builder of a configuration. The defaults are Flink's: creation and writes renew an entry, and an expired
        entry is never visible.
        """

        def __init__(self, ttl: TimeLike) -> None:
            self._ttl = ttl
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._ttl_time_characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._is_cleanup_in_background = True
            self._strategies: dict[CleanupStrategies.Strategies, CleanupStrategies.CleanupStrategy] = {}

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: StateTtlConfig.StateVisibility) -> StateTtlConfig.Builder:
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Omit expired entries when a snapshot writes all entries of the state."""
            self._strategies[CleanupStrategies.Strategies.FULL_STATE_SCAN_SNAPSHOT] = (
                CleanupStrategies.EmptyCleanupStrategy()
            )
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool = False
        ) -> StateTtlConfig.Builder:
            self._strategies[CleanupStrategies.Strategies.INCREMENTAL_CLEANUP] = (
                CleanupStrategies.IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int, periodic_compaction_time: timedelta | None = None
        ) -> StateTtlConfig.Builder:
            self._strategies[CleanupStrategies.Strategies.ROCKSDB_COMPACTION_FILTER] = (
                CleanupStrategies.RocksdbCompactFilterCleanupStrategy(
                    query_time_after_num_entries, periodic_compaction_time
                )
            )
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            self._is_cleanup_in_background = False
            return self

        def set_ttl(self, ttl: TimeLike) -> StateTtlConfig.Builder:
            self._ttl = ttl
            return self

        def build(self) -> StateTtlConfig:
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                CleanupStrategies(dict(self._strategies), self._is_cleanup_in_background),
            )
