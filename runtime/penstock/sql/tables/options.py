"""Options of a table. An option that the connector does not read is an error. So a wrong name never goes unnoticed."""

from __future__ import annotations

from penstock.common.errors import InvalidJob
from penstock.common.time import as_millis, parse_duration
from penstock.sql.plan.nodes import TableInfo


class TableOptions:
    """The options of a table's WITH clause.

    Every read marks its option as known. `finish` refuses the options that were never read.
    """

    def __init__(self, table: TableInfo) -> None:
        self.table = table
        self._options = dict(table.options)
        self.connector = self._options.pop("connector")
        self._known: set[str] = set()

    def refusal(self, message: str, remedy: str) -> InvalidJob:
        return InvalidJob(f"SQL: table {self.table.name} ({self.connector}): {message}", remedy=remedy)

    def get(self, name: str, default: str | None = None) -> str | None:
        self._known.add(name)
        return self._options.get(name, default)

    def required(self, name: str) -> str:
        found = self.get(name)
        if found is None:
            raise self.refusal(f"the option '{name}' is missing", f"add '{name}' = '…' to the WITH clause")
        return found

    def integer(self, name: str, default: int | None = None) -> int | None:
        text = self.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise self.refusal(f"'{name}' = '{text}' is not an integer", "write an integer") from None

    def number(self, name: str, default: float) -> float:
        text = self.get(name)
        try:
            return default if text is None else float(text)
        except ValueError:
            raise self.refusal(f"'{name}' = '{text}' is not a number", "write a number") from None

    def flag(self, name: str, *, default: bool) -> bool:
        text = (self.get(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise self.refusal(f"'{name}' = '{text}' is not true or false", "write true or false")
        return text == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        found = self.get(name, default) or default
        if found not in choices:
            raise self.refusal(f"'{name}' = '{found}' is not supported", f"use one of {', '.join(choices)}")
        return found

    def milliseconds(self, name: str) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        try:
            return as_millis(parse_duration(text))
        except ValueError:
            raise self.refusal(f"'{name}' = '{text}' is not a duration", "write a duration such as '10 s'") from None

    def with_prefix(self, prefix: str) -> dict[str, str]:
        found = {name.removeprefix(prefix): value for name, value in self._options.items() if name.startswith(prefix)}
        self._known |= {prefix + name for name in found}
        return found

    def finish(self, *other: str) -> None:
        """Refuse the options that were not read.

        Args:
            other: prefixes of options for the other direction. A table that a program reads and writes has both.
        """
        unknown = sorted(name for name in set(self._options) - self._known if not name.startswith(other))
        if unknown:
            raise self.refusal(
                f"the option '{unknown[0]}' is not supported",
                f"remove it. Supported options: {', '.join(sorted(self._known))}",
            )
