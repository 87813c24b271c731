"""Flink's spellings of JSON fields: three styles, sometimes mixed in one object."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Shape(BaseModel):
    """Shape whose fields are spelled as in Python (`start_time`). Unknown fields are ignored, so that clients can read responses of newer
    servers.
    """

    model_config = ConfigDict(populate_by_name=True, extra="ignore")


class Dashed(Shape):
    """Shape whose fields are spelled with dashes (`start-time`)."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))


class Camel(Shape):
    """Shape whose fields are spelled as in Java (`startTime`)."""

    model_config = ConfigDict(alias_generator=to_camel)
