"""`make prose` finds sentences that break a rule in every text that people read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.errors import ToolError
from tools.prose import tree
from tools.prose.__main__ import main
from tools.prose.rules import Finding, load, sentences

RULES = load()
LONG = "The worker " + "really " * 24 + "stops."


def findings(text: str, name: str = "page.md") -> list[Finding]:
    return RULES.findings(name, tree.read(name, text))


def rules(text: str, name: str = "page.md") -> list[str]:
    return [finding.rule for finding in findings(text, name)]


PLAIN = [
    "The operator waits until the pods are gone.",
    "Whether it restarts depends on the strategy.",
    "What does a restart cost?",
    "As soon as the barrier arrives, the task takes its snapshot.",
    "The node has room for three pods.",
    "Java's compiler C1 and an S3 bucket take part in workload W2.",
    "Use `anew` and `whoever`, see [the page](https://example.com/besides).",
    "The two causes cannot be told apart.",
    "Checkpoint 17 failed, e.g. by 403. The job keeps running.",
    "It is a row of a table that several jobs write.",
]
BROKEN = [
    ("What is missing is fetched.", "opener"),
    ("Of that window, the job takes a share.", "opener"),
    ("There is no checkpoint.", "opener"),
    ("It is the master that decides.", "opener"),
    ("The job ends. With a savepoint it restarts.", "opener"),
    ("The task begins anew.", "word"),
    ("The file has a lock of its own.", "word"),
    ("Nobody reads the key.", "word"),
    ("The JobManager is told.", "word"),
    ("The window is half open (T25).", "private-code"),
    ("Positions are in the manifest (S23, S24-S26).", "private-code"),
    (LONG, "long-sentence"),
    ("The worker stops. " * 40, "long-paragraph"),
]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_sentences_pass(text: str) -> None:
    assert findings(text) == []


@pytest.mark.parametrize(("text", "rule"), BROKEN)
def test_a_sentence_that_breaks_a_rule_is_found(text: str, rule: str) -> None:
    assert set(rules(text)) == {rule}


@pytest.mark.parametrize(
    ("docstring", "rule"),
    [
        ("In ms.", "docstring-start"),
        ("Which operator owns the job.", "docstring-start"),
        ("The newest checkpoint.", "docstring-verb"),
        ("Of one job.", "opener"),
        ("Return the newest checkpoint.", ""),
        ("At most 5 ms pass.", ""),
    ],
)
def test_a_function_docstring_starts_with_a_verb(docstring: str, rule: str) -> None:
    assert rules(f'def f() -> None:\n    """{docstring}"""\n', "a.py") == [rule] * bool(rule)


def test_docstrings_of_classes_attributes_properties_and_fixtures_may_be_nouns() -> None:
    text = '''
class Clock:
    """The clock of a job."""

    now: int
    """The time in ms."""

    @property
    def zone(self) -> str:
        """The time zone."""


@pytest.fixture
def clock() -> Clock:
    """A clock at 0."""
'''
    assert findings(text, "a.py") == []


@pytest.mark.parametrize(
    "code",
    [
        '"""The task begins anew."""',
        'x = 1\n"""The task begins anew."""',
        "# The task\n# begins anew.",
        "x = 1  # the task begins anew",
        'raise ValueError("the task begins anew")',
        'raise ValueError(f"the task {name} begins anew")',
        'raise ValueError("the task fails" + f" and begins anew {name}")',
        'fail("x", remedy="let the task begin anew")',
        'logger.warning("the task of %s begins anew", name)',
        'typer.Option("--x", help="Let the task begin anew.")',
        'ConfigOption("a.b", "the task begins anew")',
        "def test_a_task_begins_anew():\n    pass",
    ],
)
def test_every_text_of_a_module_is_read(code: str) -> None:
    (finding,) = findings(code, "a.py")
    assert finding.rule in {"word", "test-name"}


def test_data_code_and_markers_of_other_tools_are_no_prose() -> None:
    text = '''
"""The list.

    anew = whoever()

>>> anew()
'begins anew'

┌ whoever ┐
"""
x = "the task begins anew"
y = {"#": "anew"}  # noqa: ERA001 anew
SQL = """
# whoever
"""
# anew = whoever()
'''
    assert findings(text, "a.py") == []


def test_arguments_and_table_cells_may_be_fragments() -> None:
    text = '"""Start a job.\n\nArgs:\n    name: with a prefix.\n    path: of the job.\n"""\n'
    (finding,) = findings(text, "a.py")
    assert (finding.line, finding.rule) == (5, "opener")
    assert findings("| Event | Where to |\n|---|---|\n| with a prefix | where it is |\n") == []
    assert rules("| a thing | b thing |\n|---|---|\n| what is wrong | in ms |\n") == ["opener"]
    assert rules("# What happens\n") == ["opener"]
    assert rules("# With a prefix\n") == rules("# What happens?\n") == []


def test_a_finding_has_the_line_of_its_sentence() -> None:
    text = "The job starts.\nThe job runs until\nthe input ends. The job begins\nanew. The job ends.\n"
    (finding,) = findings(f"# Title\n\n```\nanew\n```\n\n{text}")
    assert (finding.line, finding.text) == (9, "The job begins anew.")


def test_comments_and_descriptions_of_other_files_are_read() -> None:
    yaml = "# The pod begins anew.\nreplicas: 2\nsummary: The pod begins anew.\n#image: anew\n"
    assert [finding.line for finding in findings(yaml, "values.yaml")] == [1, 3]
    assert rules("/** The task\n * begins anew. */\nint anew;\n", "A.java") == ["word"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "x = 1  # the task begins anew  # prose: allow word: a quotation\n"),
        ("a.py", "# prose: allow word: a quotation\n# The task begins anew.\n"),
        ("a.py", '# prose: allow word: a quotation\n"""Title.\n\nThe task begins anew.\n"""\n'),
        ("a.py", '"""Title.\n\nThe task begins anew.\n"""  # prose: allow word: a quotation\n'),
        ("page.md", "The task begins anew. <!-- prose: allow word: a quotation -->\n"),
        ("page.md", "<!-- prose: allow word: a quotation -->\n| a task | b task |\n|---|---|\n| x | begins anew |\n"),
    ],
)
def test_an_exception_beside_the_text_with_a_reason_allows_it(name: str, text: str) -> None:
    assert findings(text, name) == []


def test_an_exception_covers_nothing_else() -> None:
    text = "The task begins anew. <!-- prose: allow word: a quotation -->\n\nThe task begins anew.\n"
    assert [finding.line for finding in findings(text)] == [3]


@pytest.mark.parametrize(
    ("marker", "advice"),
    [
        ("prose: allow word", "no reason"),
        ("prose: allow wrod: a quotation", "there is no rule 'wrod'"),
        ("prose: allow opener: a quotation", "nothing here breaks opener"),
    ],
)
def test_an_exception_needs_a_reason_a_rule_and_something_to_allow(marker: str, advice: str) -> None:
    found = findings(f"The task begins anew. <!-- {marker} -->\n")
    assert [finding.advice for finding in found if finding.rule == "exception" and advice in finding.advice]
    assert "word" in {finding.rule for finding in found}


def test_a_sentence_may_start_with_a_small_letter() -> None:
    assert sentences("A consumer asks. librdkafka has a call, vs. the admin client.") == [
        "A consumer asks.",
        "librdkafka has a call, vs. the admin client.",
    ]


def test_aligned_definitions_are_items() -> None:
    rows = "".join(f"name{number}   the meaning of the name in ten words or so\n" for number in range(9))
    assert findings(f'"""The names.\n\n{rows}"""\n', "a.py") == []


def test_abbreviations_do_not_end_a_sentence() -> None:
    assert sentences("Stop it, e.g. The job. Then wait. It takes 1.5 s.") == [
        "Stop it, e.g. The job.",
        "Then wait.",
        "It takes 1.5 s.",
    ]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in ("a/one.md", "a/two.md", "b/three.md"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("The task begins anew.\n")
    return tmp_path


def test_findings_fail_and_are_shown(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "b/four.md").write_text("What is new fails.\n")
    assert main([], repository) == 1
    shown = capsys.readouterr().out
    assert "b/four.md:1: opener: What is new fails." in shown
    assert "a/one.md:1: word: The task begins anew." in shown
    assert "prose: 4 findings" in shown


def test_texts_without_a_finding_pass(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "b/three.md").write_text("The task restarts.\n")
    assert main(["b"], repository) == 0
    assert capsys.readouterr().out == "prose: 0 findings\n"


def test_a_path_and_a_rule_limit_the_check(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a"], repository) == 1
    shown = capsys.readouterr().out
    assert "a/one.md:1: word: The task begins anew." in shown
    assert "three.md" not in shown
    assert main(["a/one.md", "--rule", "opener"], repository) == 0
    assert "begins anew" not in capsys.readouterr().out


def test_a_misspelt_path_is_refused(repository: Path) -> None:
    with pytest.raises(ToolError, match="no text to check below c"):
        tree.files(repository, ["c"])
    assert main(["c"], repository) == 2


def test_a_file_that_is_not_python_is_named(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_MANY", 2)
    (repository / "a/broken.py").write_text("def f(:\n")
    with pytest.raises(ToolError, match=r"broken\.py is not Python") as caught:
        tree.check(repository, ["a/broken.py", "a/one.md"])
    assert caught.value.remedy.startswith("fix it")


def test_only_files_that_changed_are_read_again(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_MANY", 2)
    monkeypatch.setattr(tree, "_WORKERS", 1)
    names = tree.files(repository)
    first = tree.check(repository, names)
    (repository / names[0]).write_text("The task restarts.\n")
    read: list[str] = []
    check = tree._check
    monkeypatch.setattr(tree, "_check", lambda root, name: read.append(name) or check(root, name))
    assert tree.check(repository, names) == first[1:]
    assert read == names[:1]
    (repository / "build/prose/findings.json").write_text("{torn")
    monkeypatch.setattr(tree, "_check", check)
    assert tree.check(repository, names) == first[1:]


def test_the_tool_itself_passes_the_check() -> None:
    root = Path(__file__).parents[2]
    assert tree.check(root, tree.files(root, ["tools/prose"])) == []
