"""One application or server for all tests, with another cluster behind it in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.rest.fake_gateway import FakeGateway


class Current:
    """Stands for the gateway of the test that runs: making an application is slow, so all tests share one."""

    gateway: FakeGateway

    def __getattr__(self, name: str) -> object:
        return getattr(self.gateway, name)
