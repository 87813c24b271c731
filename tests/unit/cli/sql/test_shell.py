"""The SQL shell, on a terminal that a test types on."""

from __future__ import annotations

import threading
import time

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from penstock.cli.sql.completion import SqlCompleter
from penstock.cli.sql.pager import Pager
from penstock.cli.sql.shell import Shell
from penstock.common.types import RowKind
from tests.unit.table.sql_session import Changes, fake_session, row


@pytest.fixture
def typed():
    with create_pipe_input() as found:
        yield found


@pytest.fixture
def shell(typed, tmp_path):
    session = fake_session()
    session.execute("SET 'sql-client.execution.result-mode' = 'tableau'")
    return Shell(session, input=typed, output=DummyOutput(), history=tmp_path / "history")


def test_statements_of_several_lines_are_executed_until_quit(shell, typed, capsys):
    typed.send_text("SHOW\rTABLES;\rSELECT n, ';' \r FROM numbers;\rQUIT;\rSHOW TABLES;\r")
    shell.run()
    assert shell.session.env.executed == ["SHOW\nTABLES", "SELECT n, ';' \n FROM numbers"]
    output = capsys.readouterr().out
    assert "numbers" in output
    assert "| +I |" in output
    assert "2 rows in set" in output


def test_an_error_is_shown_with_a_caret_and_the_shell_goes_on(shell, typed, capsys):
    typed.send_text("SELECT MISSING ;\rSHOW TABLES;\r\x04")
    shell.run()
    printed = capsys.readouterr()
    assert "line 1, column 1" in printed.err
    assert "\n  SELECT MISSING\n  ^\n" in printed.err
    assert shell.session.env.executed[-1] == "SHOW TABLES"


def test_ctrl_c_clears_the_input(shell, typed):
    typed.send_text("SELECT 'not closed\x03SHOW TABLES;\rEXIT;\r")
    shell.run()
    assert shell.session.env.executed == ["SHOW TABLES"]


def test_the_history_keeps_statements_of_earlier_shells(shell, typed, tmp_path):
    typed.send_text("SHOW TABLES;\rQUIT;\r")
    shell.run()
    again = Shell(shell.session, input=typed, output=DummyOutput(), history=tmp_path / "history")
    typed.send_text("\x1b[A\x1b[A\rQUIT;\r")
    again.run()
    assert shell.session.env.executed == ["SHOW TABLES", "SHOW TABLES"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SEL", ["SELECT"]),
        ("sel", ["select"]),
        ("SELECT * FROM num", ["numbers"]),
        ("SELECT * FROM or", ["`order`", "or", "order"]),
        ("SELECT ab", ["abs"]),
        ("SELECT 'sel", []),
    ],
)
def test_tab_completes_keywords_tables_and_functions(text, expected):
    completer = SqlCompleter(fake_session())
    found = completer.get_completions(Document(text), CompleteEvent())
    assert [completion.text for completion in found] == expected


def test_tab_completes_the_columns_of_the_tables_in_the_statement():
    completer = SqlCompleter(fake_session())
    document = Document("SELECT  FROM numbers", len("SELECT "))
    texts = [completion.text for completion in completer.get_completions(document, CompleteEvent())]
    assert texts[:2] == ["n", "v"]


class View:
    """A pager in a thread, whose keys a test types."""

    def __init__(self, typed, changes, **options):
        self.typed = typed
        self.pager = Pager(
            ["n", "v"], changes, input=typed, output=DummyOutput(), **({"changelog": False, "limit": 100} | options)
        )
        self.error = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            self.pager.run()
        except Exception as error:
            self.error = error

    def shows(self, text):
        deadline = time.monotonic() + 20
        while text not in self.pager._page() + self.pager._status():
            assert time.monotonic() < deadline, self.pager._page()
            time.sleep(0.01)

    def press(self, keys):
        self.typed.send_text(keys)

    def end(self):
        self.thread.join(20)
        assert not self.thread.is_alive()


def test_a_result_changes_while_the_query_runs_and_q_cancels_it(typed):
    changes = Changes(row(1, "a"))
    view = View(typed, changes)
    view.shows("1  a")
    changes.queue.put(row(1, "a", kind=RowKind.UPDATE_BEFORE))
    changes.queue.put(row(1, "changed", kind=RowKind.UPDATE_AFTER))
    view.shows("1  changed")
    assert "running" in view.pager._status()
    view.press("q")
    view.end()
    assert changes.is_cancelled.is_set()
    assert changes.is_closed
    assert view.pager.is_cancelled


def test_ctrl_c_cancels_the_query(typed):
    changes = Changes()
    view = View(typed, changes)
    view.press("\x03")
    view.end()
    assert changes.is_cancelled.is_set()


def test_an_ended_query_stays_visible_until_the_user_quits(typed):
    view = View(typed, Changes(row(1, "a"), endless=False))
    view.shows("ended")
    assert view.thread.is_alive()
    view.press("q")
    view.end()
    assert not view.pager.is_cancelled


def test_a_failed_query_ends_the_view_with_its_error(typed):
    changes = Changes()
    changes.queue.put(ValueError("broken"))
    view = View(typed, changes)
    view.end()
    assert str(view.error) == "broken"


def test_pages_of_changes_are_turned_and_followed(typed):
    changes = Changes(*(row(number, "a") for number in range(100)))
    view = View(typed, changes, changelog=True)
    view.shows("+I  99")
    view.press("g")
    view.shows("+I  0 ")
    view.press("n")
    view.shows("page 2/3")
    view.press("G")
    view.shows("+I  99")
    changes.queue.put(row(100, "a"))
    view.shows("+I  100")
    view.press("q")
    view.end()
