"""The live part of queryable state: a task answers look-ups of a key between two batches, over the control channel.

The task's thread answers, so no lock is needed, and an answer never shows a half-finished update of a key. While the
task has other work, it answers for a few ms, at most every 20 ms (`stream_task.StreamTask`). The JobManager limits the
number of waiting look-ups (`jobmanager.runners.live_look_ups`). An error in a look-up is never a failure of the task.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.common.errors import PenstockError
from penstock.common.logs.redaction import hide_own
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.key_groups import key_group
from penstock.state.peek.stored import Peeked
from penstock.taskmanager.subtask import Subtask

_MARK = b"\xc1"
"""First byte of a look-up frame.

No msgpack message starts with this byte, so it distinguishes look-ups from commands and acks.
"""


class LookUp(msgspec.Struct, frozen=True):
    """A request for the value of one key. `key`: the encoded key, of a builtin type."""

    id: int
    attempt: int
    uid: str
    state: str
    key: bytes


class LookUpAnswer(msgspec.Struct, frozen=True):
    """The answer to a look-up.

    `refusal`: the reason why there is no answer. `is_later`: a retry may succeed. `found`: None after a refusal.
    """

    id: int
    attempt: int
    found: Peeked | None = None
    refusal: str = ""
    is_later: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode_question = msgspec.msgpack.Decoder(LookUp).decode
_decode_answer = msgspec.msgpack.Decoder(LookUpAnswer).decode


def encode_look_up(message: LookUp | LookUpAnswer) -> bytes:
    if isinstance(message, LookUpAnswer) and message.refusal:
        message = msgspec.structs.replace(message, refusal=hide_own(message.refusal))
    return _MARK + _encode(message)


def is_look_up(frame: bytes) -> bool:
    return frame[:1] == _MARK


def decode_look_up(frame: bytes) -> LookUp:
    return _decode_question(frame[1:])


def decode_look_up_answer(frame: bytes) -> LookUpAnswer:
    return _decode_answer(frame[1:])


def answer(request: LookUp, attempt: int, subtasks: Iterable[Subtask]) -> LookUpAnswer:
    """Answer a look-up. The thread that runs the subtasks must call it.

    Args:
        attempt: the attempt of the subtasks.
    """
    if request.attempt != attempt:
        return LookUpAnswer(request.id, attempt, refusal=f"attempt {request.attempt} is over", is_later=True)
    backend = next((of for task in subtasks if (of := task.backend_of(request.uid)) is not None), None)
    if backend is None:
        return LookUpAnswer(request.id, attempt, refusal="the task is starting", is_later=True)
    try:
        key: Any = UNTYPED_KEYS.decode(request.key)
        if key_group(key, backend.max_parallelism) not in backend.key_group_range:
            return LookUpAnswer(request.id, attempt, refusal="another subtask has the key", is_later=True)
        found = backend.peek(request.state, key)
    except PenstockError as error:
        return LookUpAnswer(request.id, attempt, refusal=error.message)
    except Exception as error:  # encoding a key of a user type may raise anything
        return LookUpAnswer(request.id, attempt, refusal=f"{type(error).__name__}: {error}")
    if found is None:
        return LookUpAnswer(request.id, attempt, refusal="the subtask has not used the state yet", is_later=True)
    return LookUpAnswer(request.id, attempt, found)
