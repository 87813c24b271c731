"""`CompiledPlan`, which can be stored in a file and executed without the planner, and `TablePipeline`, which can be compiled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from penstock.common.errors import InvalidJob

if TYPE_CHECKING:
    from penstock.table.session import Session
    from penstock.table.table_result import TableResult

FORCE = "table.plan.force-recompile"
_MAX_BYTES = 64 << 20
_COMPILE = re.compile(
    r"\s*COMPILE\s+(?P<run>AND\s+EXECUTE\s+)?PLAN\s+'(?P<file>(?:[^']|'')+)'\s+(?P<keep>IF\s+NOT\s+EXISTS\s+)?"
    r"FOR\s+(?P<statement>.+?)\s*;?\s*$",
    re.IGNORECASE | re.DOTALL,
)
_EXECUTE = re.compile(r"\s*EXECUTE\s+PLAN\s+'(?P<file>(?:[^']|'')+)'\s*;?\s*$", re.IGNORECASE)


class PlanStatement(NamedTuple):
    """`COMPILE PLAN`, `EXECUTE PLAN`, or `COMPILE AND EXECUTE PLAN`.

    Args:
        statement: INSERT or STATEMENT SET that is compiled. Empty for EXECUTE PLAN.
        keep: whether an existing file is kept.
    """

    file: str
    statement: str
    execute: bool
    keep: bool


def plan_statement(stmt: str) -> PlanStatement | None:
    """Return the parts of a statement about plans, or None for other statements.

    >>> plan_statement("COMPILE PLAN '/p.json' IF NOT EXISTS FOR INSERT INTO a SELECT * FROM b;")
    PlanStatement(file='/p.json', statement='INSERT INTO a SELECT * FROM b', execute=False, keep=True)
    """
    found = _EXECUTE.match(stmt)
    if found is not None:
        return PlanStatement(found["file"].replace("''", "'"), "", execute=True, keep=True)
    found = _COMPILE.match(stmt)
    if found is None:
        return None
    file, statement = found["file"].replace("''", "'"), found["statement"]
    if re.match(r"STATEMENT\s+SET\b", statement, re.IGNORECASE):
        statement = f"EXECUTE {statement}"
    return PlanStatement(file, statement, execute=bool(found["run"]), keep=bool(found["keep"]))


class PlanReference:
    """A compiled plan in a file, or as JSON."""

    def __init__(self, path: Path | None, text: str) -> None:
        self._path = path
        self._text = text

    @staticmethod
    def from_file(path: str | Path) -> PlanReference:
        return PlanReference(local_path(str(path)), "")

    @staticmethod
    def from_json_string(json_string: str) -> PlanReference:
        return PlanReference(None, json_string)

    def read(self) -> str:
        """Return the plan as JSON.

        Raises:
            InvalidJob: the file cannot be read.
        """
        if self._path is None:
            return self._text
        try:
            if self._path.stat().st_size > _MAX_BYTES:
                raise InvalidJob(f"{self._path} has more than {_MAX_BYTES >> 20} MB, so it is no compiled plan")
            return self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidJob(
                f"the compiled plan {self._path} cannot be read: {error}",
                remedy="check the path, or COMPILE PLAN first",
            ) from error


def local_path(path: str) -> Path:
    """Return the path of a local file, given its path or its URL `file:///…`.

    Raises:
        InvalidJob: the URL has another scheme.
    """
    parts = urlsplit(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in path:
        raise InvalidJob(f"SQL: plans are stored in local files, not in {path}", remedy="write a path or file:///path")
    return Path(path)


class CompiledPlan:
    """A compiled plan of a `TableEnvironment`."""

    def __init__(self, environment: Session, text: str) -> None:
        self._environment = environment
        self._text = text

    def as_json_string(self) -> str:
        return self._text

    def print_json_string(self) -> None:
        print(self._text)

    def write_to_file(self, file: str | Path, ignore_if_exists: bool = False) -> None:
        """Write the plan into a local file.

        Raises:
            InvalidJob: the file exists, `ignore_if_exists` is False and the option `table.plan.force-recompile` is not `true`.
        """
        path = local_path(str(file))
        if path.exists():
            if ignore_if_exists:
                return
            if self._environment._option(FORCE) != "true":
                raise InvalidJob(
                    f"SQL: the plan file {path} exists",
                    remedy=f"remove it, add IF NOT EXISTS, or set '{FORCE}' = 'true'",
                )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._text, encoding="utf-8")

    def execute(self) -> TableResult:
        """Start the job of the plan."""
        return self._environment._execute_compiled(self._text)

    def explain(self) -> str:
        """Return the nodes of the plan, each above its inputs."""
        return self._environment._explain_compiled(self._text)


class TablePipeline:
    """A complete pipeline, which `Table.insert_into` creates."""

    def __init__(self, environment: Session, statement: str) -> None:
        self._environment = environment
        self._statement = statement

    def execute(self) -> TableResult:
        """Start the job."""
        return self._environment.execute_sql(self._statement)

    def compile_plan(self) -> CompiledPlan:
        return CompiledPlan(self._environment, self._environment._compile(self._statement))

    def explain(self) -> str:
        """Return the syntax tree and the optimized plan."""
        return self._environment.explain_sql(self._statement)
