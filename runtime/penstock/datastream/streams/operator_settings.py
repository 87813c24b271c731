"""Settings of the operator that created a stream: its name, uid, parallelism and chaining."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.common.execution_config import checked_parallelism
from penstock.common.program.one_time_warning import warn_no_effect
from penstock.common.program.user_location import refusal
from penstock.datastream.slot_sharing_group import NO_RESOURCES, RESOURCES, SlotSharingGroup

if TYPE_CHECKING:
    from typing import Self

    from penstock.graph.transformation import Transformation

_UID_HASH = re.compile(r"[0-9a-fA-F]{32}")


class OperatorSettings:
    """Base class of streams and sinks. Every setter changes the operator in place and returns the stream."""

    _transformation: Transformation | None
    _view = ""
    """Name of the method that created the stream: `key_by`, `union`, …. Empty if an operator created the stream."""

    def _own(self, setting: str) -> Transformation:
        if self._transformation is None:
            raise refusal(
                f"{setting}() sets an option of an operator, but {self._view} is not an operator",
                f"call {setting}() on the stream before {self._view}, or on the operator after it",
            )
        return self._transformation

    def name(self, name: str) -> Self:
        """Set the name of the operator for the dashboard, metrics and error messages."""
        self._own("name").name = name
        return self

    def uid(self, uid: str) -> Self:
        """Set the id of the operator. It must be unique in the job. A restore finds the state of the operator by its uid.

        Set a uid on every stateful operator, so that the program can change without losing state.
        """
        transformation = self._own("uid")
        if not isinstance(uid, str) or not uid:
            raise refusal(f"a uid must be a text that is not empty, got {uid!r}", operator=transformation.name)
        transformation.uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Set the uid to a generated hash of 32 hexadecimal digits."""
        transformation = self._own("set_uid_hash")
        if not _UID_HASH.fullmatch(uid_hash):
            raise refusal(f"a uid hash has 32 hexadecimal digits, got {uid_hash!r}", "use uid() to set your own name")
        transformation.uid = uid_hash
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks. By default, the operator has the parallelism of the environment, and is rescaled with the whole job."""
        transformation = self._own("set_parallelism")
        if checked_parallelism(parallelism) != 1 and transformation.non_parallel:
            raise refusal(
                f"{transformation.name!r} can only run with parallelism 1, got {parallelism}",
                operator=transformation.name,
            )
        limit = transformation.max_parallelism
        if limit is not None and parallelism > limit:
            raise refusal(
                f"parallelism {parallelism} is above the max parallelism {limit} of {transformation.name!r}",
                "raise set_max_parallelism. It cannot change while the job has state",
                operator=transformation.name,
            )
        transformation.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups, which is the highest parallelism of the operator. Do not change it while the operator has state."""
        transformation = self._own("set_max_parallelism")
        checked_parallelism(max_parallelism, "max parallelism")
        if transformation.parallelism is not None and transformation.parallelism > max_parallelism:
            raise refusal(
                f"max parallelism {max_parallelism} is below the parallelism {transformation.parallelism} of "
                f"{transformation.name!r}",
                operator=transformation.name,
            )
        transformation.max_parallelism = max_parallelism
        return self

    def set_description(self, description: str) -> Self:
        """Set a description for the execution plan (`get_execution_plan`). It may be longer than the name."""
        self._own("set_description").description = description
        return self

    def disable_chaining(self) -> Self:
        """Do not chain the operator to its neighbors."""
        self._own("disable_chaining").chaining = "never"
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Set the slot sharing group. Operators of different groups are never chained.

        An operator without a group has the group of its inputs if all inputs have the same group.
        """
        transformation = self._own("slot_sharing_group")
        group = slot_sharing_group
        if isinstance(group, SlotSharingGroup) and group.has_resources:
            warn_no_effect(RESOURCES, NO_RESOURCES)
        transformation.slot_sharing_group = group.get_name() if isinstance(group, SlotSharingGroup) else group
        return self
