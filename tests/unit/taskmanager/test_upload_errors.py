"""Errors during the upload of state fail the checkpoint, in an answer that the JobManager can read."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.errors import StateTypeError
from penstock.functions.operator_context import OperatorContext, SystemClock
from penstock.state.operator_state import OperatorStateStore
from penstock.taskmanager.protocol import LevelAck, SnapshotAck, decode_ack, encode_ack
from penstock.taskmanager.uploads import OperatorUpload


class Refused(Exception):
    """An error of a driver or of a user's encoder, with a code that is not one of Penstock's."""

    code = 403


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def run(self, files: Any) -> dict[str, Any]:
        raise self.error


@pytest.mark.parametrize(("error", "code"), [(Refused("no"), ""), (StateTypeError("an Opaque"), "STATE_TYPE")])
def test_only_a_code_of_penstock_is_reported(error: Exception, code: str) -> None:
    context = OperatorContext(
        uid="u",
        name="n",
        subtask=0,
        parallelism=1,
        max_parallelism=1,
        attempt=0,
        clock=SystemClock(),
        operator_state=OperatorStateStore("n"),
        user_location="job.py:1",
    )
    ack = OperatorUpload(SnapshotAck(1, "u", 0), context, Failing(error), [], None).run(Any, Any)  # type: ignore[arg-type]
    (decoded,) = decode_ack(encode_ack(LevelAck(0, 0, 0, 0, snapshots=[ack]))).snapshots
    assert type(error).__name__ in decoded.error
    assert decoded.error_code == code
