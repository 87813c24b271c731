"""`ResultTypeQueryable`: what knows the type of the records that it produces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation


class ResultTypeQueryable(ABC):
    """A source, format or schema whose records have a known type."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation: ...
