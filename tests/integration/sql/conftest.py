"""Run the same tests on every database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.sql.tables import Table


@pytest.fixture(
    params=[
        pytest.param("mariadb", marks=pytest.mark.mariadb),
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database to write to."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    server = request.getfixturevalue(request.param)
    return str(server.conninfo if request.param == "postgres" else server.url)


@pytest.fixture
def table(url: str) -> Iterator[Table]:
    found = Table(url)
    yield found
    found.execute(f"drop table {found.name}")
