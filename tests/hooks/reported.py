"""Checks of the error that the author of a failed job sees."""

from __future__ import annotations

import re

from penstock.common.errors import PenstockError
from tests.hooks.programs import HOOKS, Hook

_FILE = re.compile(r'^\s*File "([^"]+)", line \d+', re.MULTILINE)


def check_reported(error: PenstockError, hook: Hook, way: str) -> None:
    """Check that the error names the operator and the user's line, and that the user's frames come first."""
    message = str(error)
    print(message)
    if way == "vanish":
        assert "ended without an error message" in message, message
        assert hook.operator in message, message
        return
    assert "tests/hooks" in error.message, message
    if hook.operator:
        assert error.operator == hook.operator, message
        assert "programs.py:" in error.location, message
    if way == "exit":
        assert "SystemExit: 3" in error.message, message
    if way == "raise":
        assert "RuntimeError" in error.message, message
        assert "out of order" in error.message, message
    if way == "crash":
        assert "Segmentation fault" in message, message
    if way == "hang":
        assert "time.sleep(HANG_S)" in message, message
    frames = _FILE.findall(message)
    if frames:
        assert "tests/hooks" in frames[0], message
    assert HOOKS[hook.name] is hook
