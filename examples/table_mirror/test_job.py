"""Tests in one process, without Postgres and without Iceberg."""

from __future__ import annotations

from job import COLUMNS, mirror

from penstock.common.typeinfo import Types
from penstock.common.types import Row, RowKind
from penstock.testing import JobHarness

TYPE = Types.ROW_NAMED(list(COLUMNS), [Types.LONG(), Types.STRING(), Types.STRING(), Types.STRING()])
HASH = "71d4f55f72fa"  # sha256 of ann@example.com


def change(kind: RowKind, name: str | None, email: str | None) -> Row:
    return Row.of_kind(kind, id=1, name=name, email=email, country=None)


def test_addresses_are_hidden_and_changes_keep_their_kind_and_order() -> None:
    with JobHarness(parallelism=2) as harness:
        harness.collect(mirror(harness.source("changes", type_info=TYPE)), "mirror")
        harness.push(
            "changes",
            change(RowKind.INSERT, "Ann", "ann@example.com"),
            change(RowKind.UPDATE_AFTER, "Anna", "ann@example.com"),
            change(RowKind.DELETE, None, None),
        )
        found = [(row.get_row_kind(), row.name, row.email) for row in harness.outputs("mirror")]
        assert [kind for kind, _, _ in found] == [RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE]
        assert [name for _, name, _ in found] == ["Ann", "Anna", None]
        assert [email for _, _, email in found] == [HASH, HASH, None]
