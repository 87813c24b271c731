"""`python -m penstock.cli`"""

from __future__ import annotations

from penstock.cli.start import main

main()
