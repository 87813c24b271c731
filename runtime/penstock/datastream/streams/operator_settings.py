"""What can be set on the operator a stream comes from: its name, uid, parallelism, chaining."""

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
    """Base of streams and sinks. Every setter changes the operator in place and gives the stream back."""

    _transformation: Transformation | None
    _view = ""
    """What made this stream, where that is no operator: `key_by`, `union`, …."""

    def _own(self, setting: str) -> Transformation:
        if self._transformation is None:
            raise refusal(
                f"{setting}() belongs to an operator, and {self._view} is none",
                f"call {setting}() on the stream before {self._view}, or on the operator after it",
            )
        return self._transformation

    def name(self, name: str) -> Self:
        """The name people see: dashboard, metrics, error messages."""
        self._own("name").name = name
        return self

    def uid(self, uid: str) -> Self:
        """The name under which the operator's state is stored and found again; unique in the job. Set it on every
        operator that keeps state: it is what lets the program change around the state."""
        transformation = self._own("uid")
        if not isinstance(uid, str) or not uid:
            raise refusal(f"a uid must be a text that is not empty, got {uid!r}", operator=transformation.name)
        transformation.uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """As `uid`, for one that was generated: 32 hexadecimal digits."""
        transformation = self._own("set_uid_hash")
        if not _UID_HASH.fullmatch(uid_hash):
            raise refusal(f"a uid hash has 32 hexadecimal digits, got {uid_hash!r}", "use uid() for a name of your own")
        transformation.uid = uid_hash
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Number of subtasks. Without it the environment's default counts, and the job can be rescaled as a whole."""
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
                "raise set_max_parallelism before the job has state",
                operator=transformation.name,
            )
        transformation.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Number of key groups: the highest parallelism the operator can have, fixed for the life of its state."""
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
        """A longer text than the name, for the execution plan (`get_execution_plan`)."""
        self._own("set_description").description = description
        return self

    def disable_chaining(self) -> Self:
        """Fuse the operator with none of its neighbours."""
        self._own("disable_chaining").chaining = "never"
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Operators of different groups are never fused. What has no group of its own is in that of its inputs, if they have the same."""
        transformation = self._own("slot_sharing_group")
        group = slot_sharing_group
        if isinstance(group, SlotSharingGroup) and group.has_resources:
            warn_no_effect(RESOURCES, NO_RESOURCES)
        transformation.slot_sharing_group = group.get_name() if isinstance(group, SlotSharingGroup) else group
        return self
