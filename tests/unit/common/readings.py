"""The same record in every form that Python has for records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import msgspec
import pydantic


@dataclass
class Reading:
    station: str
    celsius: float


class NamedReading(NamedTuple):
    station: str
    celsius: float


class DictReading(TypedDict):
    station: str
    celsius: float


class StructReading(msgspec.Struct):
    station: str
    celsius: float


class ModelReading(pydantic.BaseModel):
    station: str
    celsius: float
