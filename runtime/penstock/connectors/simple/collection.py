"""`CollectionSource`: the values of a Python collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.type_info.type_inference import inferred, to_type_info, type_of_values
from penstock.connectors.core.source import ReaderContext, Source
from penstock.connectors.simple.sequence import RangeEnumerator, RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.common.typeinfo import TypeInformation


class CollectionSource(Source):
    """A bounded source of the values of a collection. The values travel with the job.

    Args:
        values: the records. The source reads the iterable once, in its constructor.
        type_info: the type of the values. If it is a row type, tuples become Rows. By default the type is inferred from the values.
        splits: how many ranges are read in parallel. One split keeps the order.

    >>> CollectionSource(["a", "b"]).produced_type()
    Types.STRING()
    """

    def __init__(self, values: Iterable[Any], type_info: Any = None, *, splits: int = 1) -> None:
        self.values = list(values)
        self.type_info: TypeInformation | None = to_type_info(type_info)
        if splits < 1:
            raise InvalidJob(
                f"a collection source needs at least one split, got {splits}", remedy="set splits to at least 1"
            )
        self.splits = splits
        if self.type_info is not None:
            self.values = [_converted(self.type_info, n, value) for n, value in enumerate(self.values)]

    def create_enumerator(self) -> RangeEnumerator:
        return RangeEnumerator(0, len(self.values), self.splits)

    def create_reader(self, context: ReaderContext) -> RangeReader:
        values = self.values
        return RangeReader(lambda start, end: values[start:end])

    def produced_type(self) -> Any:
        return inferred(type_of_values(self.values)) if self.type_info is None else self.type_info


def _converted(type_info: TypeInformation, index: int, value: Any) -> Any:
    reason = ""
    try:
        converted = type_info.convert(value)
        if type_info.accepts(converted):
            return converted
    except (TypeError, ValueError, AttributeError) as error:
        reason = f": {error}"
    raise InvalidJob(
        f"value {index} of the collection is not a {type_info!r}: {value!r}{reason}",
        remedy="correct the value or `type_info`; if you omit `type_info`, the type is inferred from the values",
    )
