"""Owners of the states of one operator: the operator itself and the user's functions both have states.

The states of both owners share one set of names. The first owner that registers a name keeps it, and the other owner is refused.
"""

from __future__ import annotations

from penstock.common.errors import StateNameConflict

OPERATOR, FUNCTION = "operator", "function"


def state_name_conflict(state: str, content: str, operator: str) -> StateNameConflict:
    """Return the error for a function's state that has the name of a table of its operator.

    Args:
        state: kind and name of the state.
        content: description of the operator's entries in the table.
        operator: name of the operator.
    """
    return StateNameConflict(
        f"a function asks for {state}, but the operator keeps its own {content} under this name: both would overwrite each other",
        remedy="give the state of the function another name",
        operator=operator,
    )
