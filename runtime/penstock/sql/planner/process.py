"""`PlannerProcess`: a Java process with Flink's planner. It keeps the tables and options of a session."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from penstock.common.errors import ClusterError, InvalidJob
from penstock.jobmanager.cluster.jvm.java import find_java
from penstock.sql.planner.jars import class_path
from penstock.sql.planner.record import PlanRecord

_POSITION = re.compile(r"(?:[Aa]t|[Ff]rom) line (\d+), column (\d+)")
_EXPECTED = re.compile(r"\nWas expecting.*", re.DOTALL)
_SPECIFIC = ("SqlValidatorException", "ValidationException", "SqlParserException", "TableException")


class SqlError(InvalidJob):
    """A statement that Flink's planner refuses. `line` and `column` start at 1, and are None if Flink names no position."""

    code = "SQL"

    def __init__(
        self, message: str, *, line: int | None = None, column: int | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy or "correct the statement")
        self.line = line
        self.column = column


@dataclass(frozen=True)
class Answer:
    """The planner's answer to one statement.

    Args:
        kind: `rows` for a statement that the planner executed itself, `insert` and `query` for a compiled plan, `explained` for a text.
        types: types of the columns of a query, as SQL text.
    """

    kind: str
    plan: str = ""
    text: str = ""
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = field(default=())


def error_of(messages: list[str], sql: str) -> SqlError:
    """Return the error that a person reads, from the chain of Java's exceptions.

    >>> chain = ["a.ValidationException: SQL validation failed. At line 1, column 8: Column 'x' not found in any table"]
    >>> error_of(chain, "SELECT x FROM t").message
    "line 1, column 8: Column 'x' not found in any table\\n  SELECT x FROM t\\n         ^"
    """
    line = column = None
    for message in messages:
        found = _POSITION.search(message)
        if found:
            line, column = int(found[1]), int(found[2])
            break
    kinds = [message.partition(": ")[0].rpartition(".")[2] for message in messages]
    texts = [_EXPECTED.sub("", message.partition(": ")[2]) for message in messages]
    specific = [text for kind, text in zip(kinds, texts, strict=True) if kind in _SPECIFIC and text != "null"]
    text = (specific or [f"{kind}: {text}" for kind, text in zip(kinds, texts, strict=True)])[-1]
    text = re.sub(r"^(SQL validation failed\. |SQL parse failed\. )", "", text)
    text = re.sub(r"^(At|From) line \d+, column \d+(?: to line \d+, column \d+)?: ", "", text)
    if line is None or column is None:
        return SqlError(text)
    lines = sql.splitlines()
    shown = f"\n  {lines[line - 1]}\n  {' ' * (column - 1)}^" if line <= len(lines) else ""
    return SqlError(f"line {line}, column {column}: {text}{shown}", line=line, column=column)


class PlannerProcess:
    """A session of Flink's planner. The process starts with the first statement that has no recorded answer. It ends with `close`.

    Args:
        connectors: for each connector, the changelog modes in which SQL reads and writes it: `insert`, `upsert`, `all`, or empty for never.
    """

    def __init__(
        self, connectors: Mapping[str, tuple[str, str]], *, zone: str = "UTC", record: PlanRecord | None = None
    ) -> None:
        self._connectors = dict(connectors)
        self._zone = zone
        self.record = record or PlanRecord()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None

    def sql(self, statement: str) -> Answer:
        """Let the planner execute or compile one statement.

        Raises:
            SqlError: Flink refuses the statement.
        """
        return self._ask({"action": "sql", "sql": statement})

    def statement_set(self, statements: list[str]) -> Answer:
        """Compile several INSERT statements into one plan."""
        text = "".join(f"{statement.strip().rstrip(';')};\n" for statement in statements)
        return self._ask({"action": "set-of-statements", "sql": text})

    def explain(self, statement: str) -> str:
        return self._ask({"action": "explain", "sql": statement}).text

    def schema(self, query: str) -> Answer:
        """Return the names and types of a query's columns."""
        return self._ask({"action": "schema", "sql": query})

    def set_option(self, key: str, value: str) -> None:
        self._ask({"action": "set", "key": key, "value": value, "sql": ""})

    def reset_option(self, key: str) -> None:
        self._ask({"action": "reset", "key": key, "sql": ""})

    def create_view(self, name: str, query: str) -> None:
        self._ask({"action": "view", "name": name, "sql": query})

    def create_function(
        self, name: str, kind: str, arguments: list[str] | None, result: str, *, deterministic: bool, is_system: bool
    ) -> None:
        """Register the types of a function of the program. `arguments` of None means any types."""
        self._ask(
            {
                "action": "function",
                "name": name,
                "kind": kind,
                "arguments": "" if arguments is None else json.dumps(arguments),
                "result": result,
                "deterministic": "true" if deterministic else "false",
                "scope": "system" if is_system else "catalog",
                "sql": "",
            }
        )

    def close(self) -> None:
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return
            for stream in (process.stdin, process.stdout):
                cast("BinaryIO", stream).close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._log.close()

    def _ask(self, request: dict[str, str]) -> Answer:
        with self._lock:
            answer = self.record.answer(request)
            if answer is None:
                answer = self._answer(request)
                self.record.add(request, answer)
        return Answer(
            answer["kind"],
            answer.get("plan", ""),
            answer.get("text", ""),
            tuple(answer.get("names", ())),
            tuple(answer.get("types", ())),
            tuple(map(tuple, answer.get("rows", ()))),
        )

    def _answer(self, request: dict[str, str]) -> dict[str, Any]:
        """Return the process's answer. A new process first repeats the requests that changed the session."""
        if self._process is None:
            self._process = self._start()
            for earlier in self.record.repeated:
                self._exchange(self._process, earlier)
        return self._exchange(self._process, request)

    def _exchange(self, process: subprocess.Popen[bytes], request: dict[str, str]) -> dict[str, Any]:
        stdin, stdout = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = b""
        except BaseException:  # such as KeyboardInterrupt: the next request would read the answer to this one
            self._process = None
            process.kill()
            process.wait()
            raise
        if not line:
            raise self._ended(process)
        answer: dict[str, Any] = json.loads(line)
        if "errors" in answer:
            raise error_of(answer["errors"], request["sql"])
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        listed = ",".join(f"{name}:{reads}:{writes}" for name, (reads, writes) in self._connectors.items())
        command = [
            str(Path(find_java()) / "bin" / "java"),
            "-Xmx1g",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Dlog4j2.level=ERROR",
            f"-Duser.timezone={self._zone}",
            f"-Dpenstock.connectors={listed}",
            "-cp",
            os.pathsep.join(map(str, class_path())),
            "penstocksql.PlannerMain",
            "streaming",
        ]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)

    def _ended(self, process: subprocess.Popen[bytes]) -> ClusterError:
        code = process.wait()
        self._process = None
        self._log.seek(0)
        tail = self._log.read()[-2000:].decode(errors="replace").strip()
        return ClusterError(
            f"the SQL planner ended with exit code {code}: {tail or 'it printed nothing'}",
            remedy="check the memory of this machine: the planner needs up to 1 GB",
        )
