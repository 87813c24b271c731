"""`python -m penstock.cli`"""

from __future__ import annotations

from penstock.cli.main import app

app(prog_name="penstock")
