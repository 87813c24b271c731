"""One application or server for all tests, with a separate cluster in each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.rest.fake_gateway import FakeGateway


class Current:
    """A gateway that forwards to the gateway of the current test.

    All tests share one application because it starts slowly.
    """

    gateway: FakeGateway

    def __getattr__(self, name: str) -> object:
        return getattr(self.gateway, name)
