"""The dialect of CSV files: separators, quotes and header."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.common.program.user_location import refusal


@dataclass(frozen=True)
class CsvDialect:
    """Separators, quotes and header of CSV. `quote` and `escape` are one character, or None.

    These are the values of `header`:

    - "none": the first line is a record.
    - "skip": the first line is skipped.
    - "names": the first line names the columns. They may be in any order, and the file may have other columns.
    - "strict": the first line must have the declared fields in their order.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_value: str | None = None
    """Text that means None. By default an empty value, except in str fields, in which it is the empty string."""
    header: str = "none"
    allow_comments: bool = False
    """Whether lines that begin with `#` are skipped."""
    array_separators: dict[str, str] = field(default_factory=dict)
    """Separators of elements, by the name of a list field."""

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            value = getattr(self, name)
            if value is not None and (len(value) != 1 or not value.isascii()):
                raise refusal(f"the CSV {name} must be one ASCII character, not {value!r}")
        if self.header not in ("none", "skip", "names", "strict"):
            raise refusal(
                f"a CSV format cannot have header={self.header!r}", "write 'none', 'skip', 'names' or 'strict'"
            )
