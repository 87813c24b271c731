"""How Flink spells its JSON: three styles, sometimes mixed in one object."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Shape(BaseModel):
    """Fields are spelt as in Python (`start_time`). Unknown fields are ignored, so that newer servers can be read."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore")


class Dashed(Shape):
    """Fields are spelt with dashes (`start-time`)."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))


class Camel(Shape):
    """Fields are spelt as in Java (`startTime`)."""

    model_config = ConfigDict(alias_generator=to_camel)
