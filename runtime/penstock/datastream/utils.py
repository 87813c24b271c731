"""`ResultTypeQueryable`: the base class of objects that know the type of the records that they produce."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation


class ResultTypeQueryable(ABC):
    """Source, format or schema whose records have a known type."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation: ...
