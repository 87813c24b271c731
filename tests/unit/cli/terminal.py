"""Runs `penstock` in this process and keeps what it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from penstock.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Terminal:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)

    def __call__(self, *words: str) -> Outcome:
        result = CliRunner().invoke(app, list(words), env=self.environment, prog_name="penstock")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)
