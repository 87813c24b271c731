"""Checks of the error that the author of a failed job sees."""

from __future__ import annotations

import re

from penstock.common.errors import PenstockError
from tests.hooks.programs import HOOKS, Hook

_FILE = re.compile(r'^\s*File "([^"]+)", line \d+', re.MULTILINE)


def check_reported(error: PenstockError, hook: Hook, way: str) -> None:
    """Check that the error names the operator and the user's line, and that the user's frames come first."""
    told = str(error)
    print(told)
    if way == "vanish":
        assert "ended without an error message" in told, told
        assert hook.operator in told, told
        return
    assert "tests/hooks" in error.message, told
    if hook.operator:
        assert error.operator == hook.operator, told
        assert "programs.py:" in error.location, told
    if way == "exit":
        assert "SystemExit: 3" in error.message, told
    if way == "raise":
        assert "RuntimeError" in error.message, told
        assert "out of order" in error.message, told
    if way == "crash":
        assert "Segmentation fault" in told, told
    if way == "hang":
        assert "time.sleep(HANG_S)" in told, told
    frames = _FILE.findall(told)
    if frames:
        assert "tests/hooks" in frames[0], told
    assert HOOKS[hook.name] is hook
