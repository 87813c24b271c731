"""`ClientSession`: statements of Flink's SQL client and SQL gateway, on a `TableEnvironment`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.job_status import GLOBALLY_TERMINAL
from penstock.common.logs.redaction import is_secret
from penstock.table.client.statements import Statement, split
from penstock.table.environment_settings import EnvironmentSettings
from penstock.table.table_result import TableResult

if TYPE_CHECKING:
    from penstock.common.job_client import JobClient
    from penstock.table.table_environment import TableEnvironment

_KEY = r"(?:'((?:[^']|'')+)'|([\w.-]+))"
_SET = re.compile(rf"SET\s+{_KEY}\s*=\s*(?:'((?:[^']|'')*)'|(\S+))\s*$", re.IGNORECASE)
_SET_ALL = re.compile(r"SET\s*$", re.IGNORECASE)
_RESET = re.compile(rf"RESET(?:\s+{_KEY})?\s*$", re.IGNORECASE)
_SHOW_JOBS = re.compile(r"SHOW\s+JOBS\s*$", re.IGNORECASE)
_STOP_JOB = re.compile(r"STOP\s+JOB\s+'([^']+)'(\s+WITH\s+SAVEPOINT)?(\s+WITH\s+DRAIN)?\s*$", re.IGNORECASE)
_SET_OF_STATEMENTS = re.compile(r"BEGIN\s+STATEMENT\s+SET\s*;", re.IGNORECASE)
_JAR = re.compile(r"(ADD|REMOVE)\s+JAR\b|SHOW\s+JARS\b", re.IGNORECASE)
_SYNC = "table.dml-sync"
_CLIENT_OPTIONS = {
    "sql-client.execution.result-mode": ("table", "changelog", "tableau"),
    "sql-client.execution.max-table-result.rows": None,
}
"""Options that only a client uses, with their values; None means a positive number."""
_STOP_S = 600.0


@dataclass(frozen=True)
class SessionJob:
    """A job that an INSERT of the session has started."""

    client: JobClient
    name: str

    @property
    def job_id(self) -> str:
        return str(self.client.get_job_id())

    @property
    def state(self) -> str:
        return self.client.get_job_status().result().value


class ClientSession:
    """A session of a client: its options, its statements and its jobs.

    Args:
        env: environment of the tables and jobs.
    """

    def __init__(self, env: TableEnvironment) -> None:
        self.env = env
        self.jobs: list[SessionJob] = []
        self._client_options: dict[str, str] = {}

    def close(self) -> None:
        """End the planner. Jobs of the session continue."""
        self.env._planner.close()

    def options(self) -> dict[str, str]:
        """Return the options that are set."""
        return {**self.env._options, **self._client_options}

    def option(self, key: str, default: str) -> str:
        """Return an option of the session."""
        return self._client_options.get(key) or self.env.get_config().get(key, default)

    def execute(self, statement: str) -> TableResult:
        """Execute one statement. A query runs when its rows are collected.

        Raises:
            SqlError: Flink's planner refuses the statement.
            PenstockError: the statement is not supported, or its job cannot start.
        """
        text = statement.strip()
        if found := _SET.match(text):
            return self.set_option(_either(found[1], found[2]), _either(found[3], found[4]))
        if _SET_ALL.match(text):
            return _rows(["key", "value"], self._options())
        if found := _RESET.match(text):
            return self._reset(_either(found[1], found[2]) or None)
        if _SHOW_JOBS.match(text):
            rows = [(job.job_id, job.name, job.state) for job in self.jobs]
            return _rows(["job id", "job name", "status"], rows)
        if found := _STOP_JOB.match(text):
            return self._stop(found[1], savepoint=bool(found[2]), drain=bool(found[3]))
        if found := _JAR.match(text):
            raise InvalidJob("SQL: jars are not supported", remedy="write functions in Python")
        head = _SET_OF_STATEMENTS.match(text)
        if head:
            statement = statement.replace(head[0], "EXECUTE STATEMENT SET BEGIN", 1)
        return self._started(self.env.execute_sql(statement))

    def run_script(self, text: str, *, place: str = "") -> Iterator[tuple[Statement, TableResult]]:
        """Execute the statements of a script one after the other, and yield each with its result.

        Args:
            place: name of the file, for errors.

        Raises:
            PenstockError: a statement failed. Later statements are not executed. The position is the one in the whole text.
        """
        for statement in split(text).all:
            try:
                yield statement, self.execute(statement.placed)
            except PenstockError as error:
                if place and not error.location:
                    error.location = f"{place}:{getattr(error, 'line', None) or statement.line}"
                raise

    def running(self) -> list[SessionJob]:
        """Return the jobs of the session that have not ended."""
        return [job for job in self.jobs if job.state not in GLOBALLY_TERMINAL]

    def _started(self, result: TableResult) -> TableResult:
        client = result.get_job_client()
        if client is None:
            return result
        self.jobs.append(SessionJob(client, result.job_name))
        if self.option(_SYNC, "false").lower() == "true":
            result.wait()
        return result

    def set_option(self, key: str, value: str) -> TableResult:
        """Set an option, as SET does.

        Raises:
            InvalidJob: the option or its value is not supported.
        """
        if key == "execution.runtime-mode" and value.lower() == "batch":
            EnvironmentSettings.in_batch_mode()
        if not key.startswith("sql-client."):
            self.env.get_config().set(key, value)
            return _done()
        if key not in _CLIENT_OPTIONS:
            raise InvalidJob(
                f"SQL: the option '{key}' does not exist", remedy=f"use one of {', '.join(_CLIENT_OPTIONS)}"
            )
        allowed = _CLIENT_OPTIONS[key]
        is_valid = value.lower() in allowed if allowed else value.isdecimal() and int(value) > 0
        if not is_valid:
            expected = ", ".join(allowed) if allowed else "a positive number"
            raise InvalidJob(f"SQL: '{key}' is set to '{value}'", remedy=f"set it to {expected}")
        self._client_options[key] = value.lower()
        return _done()

    def _reset(self, key: str | None) -> TableResult:
        if key is None:
            self._client_options.clear()
        elif self._client_options.pop(key, None) is not None:
            return _done()
        self.env._reset_options(key)
        return _done()

    def _options(self) -> list[tuple[str, str]]:
        found = self.options()
        return [(key, "******" if is_secret(key) else found[key]) for key in sorted(found)]

    def _stop(self, job_id: str, *, savepoint: bool, drain: bool) -> TableResult:
        found = [job for job in self.jobs if job.job_id == job_id]
        if not found:
            raise InvalidJob(
                f"SQL: this session has started no job '{job_id}'",
                remedy="SHOW JOBS lists the jobs of the session. `penstock cancel` and `penstock stop` end other jobs",
            )
        if drain and not savepoint:
            raise InvalidJob(
                "SQL: WITH DRAIN needs WITH SAVEPOINT", remedy="write STOP JOB '…' WITH SAVEPOINT WITH DRAIN"
            )
        if savepoint:
            path = found[0].client.stop_with_savepoint(drain).result(_STOP_S)
            return _rows(["savepoint path"], [(path,)])
        found[0].client.cancel().result(_STOP_S)
        return _done()


def _either(quoted: str | None, bare: str | None) -> str:
    return quoted.replace("''", "'") if quoted is not None else bare or ""


def _done() -> TableResult:
    return _rows(["result"], [("OK",)])


def _rows(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> TableResult:
    return TableResult.of_rows(names, rows)
