"""Iceberg tables whose catalog is a server: Apache Iceberg's own, with its REST protocol.

They behave like other tables, and the server may be killed or unavailable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.errors import SinkError, SourceError
from tests.integration.lakehouse.lakes import RestLake, catalog_of, committer_of, voted, writer_of
from tests.integration.lakehouse.test_commits import (  # noqa: F401
    test_a_commit_without_an_answer_is_made_once,
    test_checkpoints_are_committed_in_their_order_and_abandoned_ones_with_the_next,
    test_only_one_of_two_concurrent_commits_of_a_checkpoint_succeeds,
    test_rows_of_a_faster_writer_remain,
    test_rows_of_all_subtasks_become_visible_together_at_their_commit,
)
from tests.integration.lakehouse.test_sources import (  # noqa: F401
    test_a_snapshot_is_a_bounded_input,
    test_a_source_follows_appends_across_restarts,
)
from tests.integration.lakehouse.test_upserts import (  # noqa: F401
    test_a_commit_of_a_faster_writer_is_respected,
    test_a_replaced_jobmanager_changes_nothing_after_its_successor,
    test_the_kind_of_a_row_decides_how_it_is_written,
)
from tools.servers.iceberg_catalog import IcebergCatalog

pytestmark = pytest.mark.iceberg_rest


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[IcebergCatalog]:
    with catalog_of(RestLake(tmp_path)) as server:
        yield server


@pytest.fixture
def lake(catalog: IcebergCatalog, tmp_path: Path) -> RestLake:
    return RestLake(tmp_path)


def test_a_commit_whose_answer_is_lost_with_the_catalog_is_made_once(lake: RestLake, catalog: IcebergCatalog) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    committer.commit(voted(writer, 1, 1, 2))
    later = voted(writer, 2, 3)
    catalog.kill()
    with pytest.raises(SinkError):
        committer.commit(later)
    catalog.restart()
    committer_of(sink).commit(later)
    committer_of(sink).commit(later)
    assert lake.ids() == [1, 2, 3]


def test_an_unavailable_or_wrong_catalog_is_an_error_before_the_job_starts(tmp_path: Path) -> None:
    (tmp_path / "catalog.uri").write_text("http://127.0.0.1:1")
    lake = RestLake(tmp_path)
    for kind, part in ((SinkError, lake.sink()), (SourceError, lake.source())):
        with pytest.raises(kind, match=r"Iceberg .* cannot be opened.*") as error:
            part.validate()
        assert "catalog is reachable" in error.value.remedy
