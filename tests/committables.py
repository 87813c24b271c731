"""Committables in the form in which a committer receives them."""

from __future__ import annotations

import base64
from typing import Any

from penstock.connectors.core.sink import StagedCommittable


def settled(votes: list[Any]) -> list[Any]:
    """Return committables in the form that a manifest contains when their files could not be written."""
    return [
        {**vote.about, "content": base64.b64encode(vote.content()).decode()}
        if isinstance(vote, StagedCommittable)
        else vote
        for vote in votes
    ]
