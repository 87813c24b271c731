"""Rolling policies: a part file ends by size, age, idleness, or at every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.errors import InvalidJob
from penstock.common.time import TimeLike, as_millis


@dataclass(frozen=True)
class RollingPolicy:
    """A policy that ends part files. `part_size` is in bytes, the intervals are in ms, and 0 turns a limit off.

    The next completed checkpoint finishes a rolled part and makes it visible.
    """

    part_size: int = 128 << 20
    rollover_ms: int = 60_000
    inactivity_ms: int = 60_000
    on_checkpoint: bool = False

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 << 20, rollover_interval: TimeLike = 60_000, inactivity_interval: TimeLike = 60_000
    ) -> RollingPolicy:
        """Return a policy that ends a part at a size (bytes), at an age, or after a time without records (timedelta or ms).

        Raises:
            InvalidJob: a limit is not positive.
        """
        rollover_ms = as_millis(rollover_interval, "rollover_interval")
        inactivity_ms = as_millis(inactivity_interval, "inactivity_interval")
        for name, value in (
            ("part_size", part_size),
            ("rollover_interval", rollover_ms),
            ("inactivity_interval", inactivity_ms),
        ):
            if value <= 0:
                raise InvalidJob(f"{name}={value} of a rolling policy is not positive", remedy="set a positive value")
        return DefaultRollingPolicy(part_size, rollover_ms, inactivity_ms)

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """Return a policy that ends a part at every checkpoint and never before."""
        return OnCheckpointRollingPolicy(0, 0, 0, on_checkpoint=True)

    def is_full(self, size: int) -> bool:
        return 0 < self.part_size <= size

    def is_due(self, now: int, created: int, written: int) -> bool:
        """Return True if a part ends at `now`. It was created at `created`, and last written at `written` (all in ms).
        >>> RollingPolicy(rollover_ms=10, inactivity_ms=5).is_due(now=9, created=0, written=4)
        True
        """
        return 0 < self.rollover_ms <= now - created or 0 < self.inactivity_ms <= now - written

    def ending_at_checkpoints(self) -> RollingPolicy:
        """Return a policy with the same limits that also ends parts at every checkpoint."""
        return RollingPolicy(self.part_size, self.rollover_ms, self.inactivity_ms, on_checkpoint=True)


class DefaultRollingPolicy(RollingPolicy):
    """A rolling policy under PyFlink's name."""


class OnCheckpointRollingPolicy(RollingPolicy):
    """A rolling policy under PyFlink's name."""
