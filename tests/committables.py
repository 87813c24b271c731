"""What the writers of sinks vote with, as a committer gets it."""

from __future__ import annotations

import base64
from typing import Any

from penstock.connectors.sink import StagedCommittable


def settled(votes: list[Any]) -> list[Any]:
    """Committables as a manifest has them whose files could not be written."""
    return [
        {**vote.about, "content": base64.b64encode(vote.content()).decode()}
        if isinstance(vote, StagedCommittable)
        else vote
        for vote in votes
    ]
