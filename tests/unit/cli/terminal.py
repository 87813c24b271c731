"""A terminal that runs `penstock` or another command in this process and records its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from penstock.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typer import Typer


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Terminal:
    def __init__(self, environment: Mapping[str, str], command: Typer = app, name: str = "penstock") -> None:
        self.environment = dict(environment)
        self.command, self.name = command, name

    def __call__(self, *words: str) -> Outcome:
        result = CliRunner().invoke(self.command, list(words), env=self.environment, prog_name=self.name)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)
