"""The report of a master that checks its own program, as its pod and its log show it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock_operator.reconcile.observe.manifests import CHECK_BEGINS, CHECK_REPORTS, check_by_master

PASSED = (
    f'{CHECK_REPORTS}{{"ok": true, "problems": [], "warnings": [{{"code": "MEMORY_TIGHT", "message": "1 MiB"}}]}}\n'
)
REFUSED = f'{CHECK_REPORTS}{{"ok": false, "problems": [{{"code": "USER_CODE", "message": "no"}}]}}\n'
BEGUN = {"running": {"startedAt": "2026-01-01T12:00:00Z"}}
LONG_AGO = {"running": {"startedAt": "2026-01-01T11:59:00Z"}}
NOW = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)


def pod(state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    own = {"name": "penstock", "restartCount": 0, "state": state, **fields}
    return {"metadata": {"name": "weather-master-1"}, "status": {"phase": "Running", "containerStatuses": [own]}}


@pytest.mark.parametrize(
    ("state", "fields", "log", "expected"),
    [
        ({"waiting": {"reason": "ContainerCreating"}}, {}, None, "Waiting"),
        (BEGUN, {}, "", "Running"),
        (BEGUN, {"started": True}, f"{CHECK_BEGINS}\n", "Running"),
        (BEGUN, {"started": True}, None, "Running"),
        (LONG_AGO, {"started": True}, None, "NoResult"),
        (LONG_AGO, {}, None, "Running"),
        (BEGUN, {}, f"{CHECK_BEGINS}\n{PASSED}", "Passed"),
        (BEGUN, {}, f"{CHECK_BEGINS}\nhello\n{REFUSED}", "Refused"),
        (BEGUN, {}, f'{CHECK_BEGINS}\n{PASSED}{{"ok": false}}\n', "Passed"),
        (BEGUN, {}, f"{CHECK_BEGINS}\n{REFUSED[:60]}", "Running"),
        (BEGUN, {"started": True}, "an older engine\n", "NoResult"),
        (BEGUN, {"restartCount": 1}, f"{CHECK_BEGINS}\n", "NoResult"),
        ({"terminated": {"exitCode": 2, "reason": "Error"}}, {}, None, "NoResult"),
    ],
)
def test_the_log_decides_and_a_master_without_a_report_gives_no_result(
    state: dict[str, Any], fields: dict[str, Any], log: str | None, expected: str
) -> None:
    assert check_by_master(pod(state, **fields), log, "op-1", NOW).state == expected


def test_problems_and_warnings_are_those_of_a_separate_check() -> None:
    assert check_by_master(pod(BEGUN), PASSED, "op-1", NOW).warnings == ("1 MiB",)
    refused = check_by_master(pod(BEGUN), REFUSED, "op-1", NOW)
    assert [(p.code, p.message) for p in refused.problems] == [("USER_CODE", "no")]
    assert (refused.name, refused.operation) == ("weather-master-1", "op-1")
