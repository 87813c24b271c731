"""`OutputTag`: the name of a side output, and the type of its values."""

from __future__ import annotations

from typing import Any

from penstock.common.program.user_location import refusal
from penstock.common.type_info.type_inference import to_type_info


class OutputTag:
    """The name of a side output. Tags with the same id name the same output.

    A process function sends to it with `yield tag, value` or `ctx.output(tag, value)`. Call
    `get_side_output(tag)` on the resulting stream to read the side output.

    Args:
        tag_id: an id that is not empty and is unique among the side outputs of one operator.
        type_info: type of the values: a `TypeInformation` or a Python type.

    >>> late = OutputTag("late", float)
    >>> late.tag_id, late.type_info
    ('late', Types.DOUBLE())
    """

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: Any = None) -> None:
        if not isinstance(tag_id, str) or not tag_id:
            raise refusal(f"the id of an OutputTag must be a text that is not empty, got {tag_id!r}")
        self.tag_id = tag_id
        self.type_info = to_type_info(type_info)

    def get_java_output_tag(self) -> None:
        """Raise InvalidJob, because a tag has no Java object.

        Raises:
            InvalidJob: always.
        """
        raise refusal(f"OutputTag {self.tag_id!r} has no Java object behind it", "pass the OutputTag itself")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"
