"""What a deployed process says of itself."""

from __future__ import annotations

import logging
import sys


def log_to_stdout() -> None:
    """The engine's own words, one line each, where `kubectl logs` shows them."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    for name in ("py4j", "botocore", "aiobotocore", "s3fs", "fsspec", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
