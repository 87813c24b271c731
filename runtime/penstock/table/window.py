"""Group windows of the Table API: `Tumble`, `Slide` and `Session`. They become window table functions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.common.errors import InvalidJob
from penstock.table.expression import Expression


@dataclass(frozen=True)
class GroupWindow:
    """A window over an event-time column. `sizes`: the intervals, in the order of the table function.

    >>> from penstock.table.expressions import col, lit
    >>> Tumble.over(lit(10).minutes).on(col("ts")).alias("w").function("`t`", ())
    "TABLE(TUMBLE(TABLE `t`, DESCRIPTOR(`ts`), INTERVAL '0 00:10:00.000' DAY TO SECOND(3)))"
    """

    kind: str
    sizes: tuple[str, ...]
    time: str = ""
    name: str = ""

    def every(self, slide: Expression) -> GroupWindow:
        return replace(self, sizes=(slide.sql, *self.sizes))

    def on(self, time_field: Expression) -> GroupWindow:
        return replace(self, time=time_field.sql)

    def alias(self, alias: str) -> GroupWindow:
        return replace(self, name=alias)

    def function(self, table: str, keys: tuple[str, ...]) -> str:
        """Return the table function of the window over a table."""
        count = 2 if self.kind == "HOP" else 1
        if not self.time or not self.name or len(self.sizes) != count:
            raise InvalidJob(
                f"SQL: the window {self.kind} is not complete",
                remedy='call over(…), for Slide also every(…), on(col("…")) and alias("…")',
            )
        partition = f" PARTITION BY {', '.join(keys)}" if self.kind == "SESSION" and keys else ""
        return f"TABLE({self.kind}(TABLE {table}{partition}, DESCRIPTOR({self.time}), {', '.join(self.sizes)}))"


class Tumble:
    """Windows of a fixed size that do not overlap."""

    @staticmethod
    def over(size: Expression) -> GroupWindow:
        return GroupWindow("TUMBLE", (size.sql,))


class Slide:
    """Windows of a fixed size that begin at each slide."""

    @staticmethod
    def over(size: Expression) -> GroupWindow:
        return GroupWindow("HOP", (size.sql,))


class Session:
    """Windows that end after a gap without rows."""

    @staticmethod
    def with_gap(gap: Expression) -> GroupWindow:
        return GroupWindow("SESSION", (gap.sql,))
