"""Entry point of `python -m penstock_operator`."""

from __future__ import annotations

from penstock_operator.process.main import app

app()
