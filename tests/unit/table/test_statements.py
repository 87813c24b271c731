"""The statements of an SQL text."""

from __future__ import annotations

import pytest

from penstock.table.client.statements import split


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        ("-- a comment;\n/* another; one */ ;;", []),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT 'it''s; here', `a;``b`; SELECT 2", ["SELECT 'it''s; here', `a;``b`", "SELECT 2"]),
        ("SELECT /* ; */ 1 -- ;\n; -- end", ["SELECT /* ; */ 1 -- ;"]),
        ("SELECT * FROM t /*+ OPTIONS('a' = ';') */;", ["SELECT * FROM t /*+ OPTIONS('a' = ';') */"]),
        ("SELECT CASE WHEN a THEN 1 END; SELECT 2;", ["SELECT CASE WHEN a THEN 1 END", "SELECT 2"]),
        (
            "execute statement set begin INSERT INTO a SELECT CASE WHEN x THEN 1 END; INSERT INTO b SELECT 2; END; SHOW JOBS;",
            [
                "execute statement set begin INSERT INTO a SELECT CASE WHEN x THEN 1 END; INSERT INTO b SELECT 2; END",
                "SHOW JOBS",
            ],
        ),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END; SELECT 2", ["BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END", "SELECT 2"]),
        ("EXPLAIN STATEMENT SET BEGIN INSERT INTO a SELECT 1; END;", ["EXPLAIN STATEMENT SET BEGIN INSERT INTO a SELECT 1; END"]),
    ],
)  # fmt: skip
def test_a_text_is_split_at_semicolons_outside_of_strings_comments_and_sets(text, statements):
    assert [statement.text for statement in split(text).all] == statements


def test_a_statement_knows_its_position_in_the_text():
    first, second = split("-- comment\n  SELECT 1; SELECT\n2").all
    assert (first.line, first.column) == (2, 3)
    assert (second.line, second.column) == (2, 13)
    assert second.placed.splitlines()[1] == "            SELECT"


@pytest.mark.parametrize(
    "text", ["SELECT 'a", "SELECT '", "SELECT 'a''", "SELECT `a", "SELECT 1 /* a", "/*", "SELECT /*+ a"]
)
def test_a_text_that_ends_inside_of_a_string_or_comment_is_open(text):
    assert split(text).is_open


@pytest.mark.parametrize("text", ["SELECT 'a'", "SELECT ''", "SELECT ''''", "SELECT 1 /* a */", "SELECT 1 -- a"])
def test_a_text_with_closed_strings_and_comments_is_not_open(text):
    assert not split(text).is_open
