"""Limits of tables."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from penstock.common.errors import InvalidJob
from penstock.table import Table


def test_the_smaller_limit_counts():
    table = Table(Mock(), "SELECT 1")
    assert table.limit(1).limit(3)._query.endswith("FETCH NEXT 1 ROWS ONLY")
    assert table.limit(3).limit(1)._query.endswith("FETCH NEXT 1 ROWS ONLY")


def test_an_offset_after_a_limit_is_refused():
    with pytest.raises(InvalidJob, match="offset\\(\\) follows fetch"):
        Table(Mock(), "SELECT 1").limit(3).offset(1)
