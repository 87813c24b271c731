from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.session_process import SessionProcess


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionProcess]:
    session = SessionProcess(tmp_path_factory.mktemp("session"))
    session.start()
    yield session
    session.stop()
