"""Look-ups of one key that a task answers between two batches, over the control channel: the live part of queryable state.

The task's own thread answers, so nothing is locked and an answer is never the half of what a function does to a key. It takes a turn of
some ms for those that wait, at most every 20 ms while it has other work (`stream_task.StreamTask`); the JobManager bounds how many those can be
(`jobmanager.runners.live_look_ups`). Nothing that goes wrong with a look-up is a failure of the task.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.common.errors import PenstockError
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.key_groups import key_group
from penstock.state.peek import Peeked
from penstock.taskmanager.subtask import Subtask

_MARK = b"\xc1"
"""No msgpack begins with it: it tells these frames from commands and acks."""


class LookUp(msgspec.Struct, frozen=True):
    """`key`: builtin, encoded."""

    id: int
    attempt: int
    uid: str
    state: str
    key: bytes


class LookUpAnswer(msgspec.Struct, frozen=True):
    """`refusal`: why there is no answer, in words; `is_later`: another time there may be one. `found`: None if it was refused."""

    id: int
    attempt: int
    found: Peeked | None = None
    refusal: str = ""
    is_later: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode_question = msgspec.msgpack.Decoder(LookUp).decode
_decode_answer = msgspec.msgpack.Decoder(LookUpAnswer).decode


def encode_look_up(message: LookUp | LookUpAnswer) -> bytes:
    return _MARK + _encode(message)


def is_look_up(frame: bytes) -> bool:
    return frame[:1] == _MARK


def decode_look_up(frame: bytes) -> LookUp:
    return _decode_question(frame[1:])


def decode_look_up_answer(frame: bytes) -> LookUpAnswer:
    return _decode_answer(frame[1:])


def answer(asked: LookUp, attempt: int, subtasks: Iterable[Subtask]) -> LookUpAnswer:
    """From the thread that works on these subtasks.

    Args:
        attempt: the one that they belong to.
    """
    if asked.attempt != attempt:
        return LookUpAnswer(asked.id, attempt, refusal=f"attempt {asked.attempt} is over", is_later=True)
    backend = next((of for task in subtasks if (of := task.backend_of(asked.uid)) is not None), None)
    if backend is None:
        return LookUpAnswer(asked.id, attempt, refusal="the task is starting", is_later=True)
    try:
        key: Any = UNTYPED_KEYS.decode(asked.key)
        if key_group(key, backend.max_parallelism) not in backend.key_group_range:
            return LookUpAnswer(asked.id, attempt, refusal="another subtask has the key", is_later=True)
        found = backend.peek(asked.state, key)
    except PenstockError as error:
        return LookUpAnswer(asked.id, attempt, refusal=error.message)
    except Exception as error:  # what types of the user's do when they are encoded
        return LookUpAnswer(asked.id, attempt, refusal=f"{type(error).__name__}: {error}")
    if found is None:
        return LookUpAnswer(asked.id, attempt, refusal="the subtask has not used the state yet", is_later=True)
    return LookUpAnswer(asked.id, attempt, found)
