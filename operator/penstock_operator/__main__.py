"""`python -m penstock_operator`."""

from __future__ import annotations

from penstock_operator.main import app

app()
