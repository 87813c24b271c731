"""The distribution of a snapshot's state over the subtasks of a job (pure): by uid, at any parallelism.

Keyed state is distributed by key group. A new subtask gets every handle that overlaps its key groups, and its backend
reads only the key groups that it owns. Every subtask gets all operator state, as one snapshot per former subtask. The
backend splits, unites or copies the operator state, depending on the mode of the state. The enumerator distributes
source splits. The sink's committer gets the commits.

A restore is refused if the snapshot has state that no operator of the new job claims. The caller can allow the restore to
drop such state, for single uids or for all. The plan lists the dropped state.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.checkpoint.files.manifest import Manifest, OperatorInfo, OperatorState, SourceState
from penstock.common.errors import RestoreRefused, SnapshotTorn
from penstock.state.key_groups import KeyGroupRange, key_group_range

if TYPE_CHECKING:
    from collections.abc import Sequence


class NewOperator(Protocol):
    """The restore's view of an operator of the new job. `manifest.OperatorInfo` has these fields."""

    @property
    def uid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def parallelism(self) -> int: ...
    @property
    def max_parallelism(self) -> int: ...


@dataclass(frozen=True)
class SubtaskState:
    """The state that one new subtask of one operator restores."""

    keyed: list[dict[str, Any]] = field(default_factory=list)
    """Handles that overlap its key groups, in the order of the former subtasks."""
    operator: list[dict[str, Any]] = field(default_factory=list)
    """Snapshots of every former subtask, in order."""

    @property
    def is_empty(self) -> bool:
        return not self.keyed and not self.operator


@dataclass(frozen=True)
class DroppedState:
    """State of the snapshot that no operator of the new job claims."""

    uid: str
    name: str
    contents: list[str]
    """Texts that name the states, splits and pending commits."""

    def __str__(self) -> str:
        return f"{self.uid!r} ({self.name}): {', '.join(self.contents)}"


@dataclass(frozen=True)
class RestorePlan:
    """The state of every new subtask: `subtasks[uid][i]` is for subtask i. `new_uids`: operators that start without state."""

    subtasks: dict[str, list[SubtaskState]]
    sources: dict[str, SourceState]
    commits: dict[str, list[Any]]
    dropped: list[DroppedState]
    new_uids: list[str]

    def of(self, uid: str, subtask: int) -> SubtaskState:
        """Return the state of a subtask. It is empty for an operator without state in the snapshot."""
        states = self.subtasks.get(uid)
        return states[subtask] if states else SubtaskState()


def plan_restore(
    manifest: Manifest,
    new_operators: Sequence[NewOperator],
    allow_non_restored: bool | Sequence[str] = False,
) -> RestorePlan:
    """Match the snapshot with the new job's operators.

    `allow_non_restored`: uids whose state may be dropped; True allows all.

    Raises:
        RestoreRefused: dropping a state was not allowed, an operator's max parallelism differs from that of its state,
            or an operator's parallelism exceeds its max parallelism.
        SnapshotTorn: an operator's handles do not cover all key groups.
    """
    by_uid = {operator.uid: operator for operator in new_operators}
    unmatched = [dropped for uid in _uids(manifest) if uid not in by_uid and (dropped := _describe(manifest, uid))]
    refused = [] if allow_non_restored is True else [d for d in unmatched if d.uid not in (allow_non_restored or ())]
    if refused:
        raise _refuse(manifest, refused, by_uid)
    subtasks = {}
    for operator in new_operators:
        state = manifest.states.get(operator.uid)
        if state is not None and (state.keyed or state.operator):
            _check_parallelism(manifest, operator, state)
            subtasks[operator.uid] = [
                _subtask_state(state, operator, subtask) for subtask in range(operator.parallelism)
            ]
    known = set(_uids(manifest))
    return RestorePlan(
        subtasks,
        {uid: source for uid, source in manifest.sources.items() if uid in by_uid},
        {uid: items for uid, items in manifest.commits.items() if uid in by_uid and items},
        unmatched,
        [operator.uid for operator in new_operators if operator.uid not in known],
    )


def _subtask_state(state: OperatorState, operator: NewOperator, subtask: int) -> SubtaskState:
    key_groups = key_group_range(subtask, operator.parallelism, operator.max_parallelism)
    keyed = [handle for handle in state.keyed if _key_group_range(handle).overlaps(key_groups)]
    return SubtaskState(keyed, list(state.operator))


def _key_group_range(handle: dict[str, Any]) -> KeyGroupRange:
    start, end = handle["key_groups"]
    return KeyGroupRange(int(start), int(end))


def _check_parallelism(manifest: Manifest, operator: NewOperator, state: OperatorState) -> None:
    former = next((info for info in manifest.operators if info.uid == operator.uid), None)
    if former is None or not state.keyed:
        return
    if operator.max_parallelism != former.max_parallelism:
        raise RestoreRefused(
            f"operator {operator.uid!r} has max parallelism {operator.max_parallelism}, but its state in {_name(manifest)} "
            f"was written with {former.max_parallelism}. The job would look for keys in the wrong key groups",
            remedy=f"call set_max_parallelism({former.max_parallelism}) on the operator or the environment. It cannot change while "
            "the job has state",
            operator=operator.uid,
        )
    if operator.parallelism > operator.max_parallelism:
        raise RestoreRefused(
            f"operator {operator.uid!r} is to run with parallelism {operator.parallelism}, above its max parallelism "
            f"{operator.max_parallelism}",
            remedy=f"use a parallelism of at most {operator.max_parallelism}",
            operator=operator.uid,
        )
    _check_coverage(manifest, former, state)


def _check_coverage(manifest: Manifest, former: OperatorInfo, state: OperatorState) -> None:
    following = 0
    ranges = [group for group in sorted(map(_key_group_range, state.keyed)) if group.start <= group.end]
    for group in [*ranges, KeyGroupRange(former.max_parallelism, former.max_parallelism)]:
        if group.start != following:
            raise SnapshotTorn(
                f"the keyed state of {former.uid!r} in {_name(manifest)} must cover each of its "
                f"{former.max_parallelism} key groups exactly once. Group {following} is missing or has two states",
                remedy="use another checkpoint or savepoint, and report this one",
            )
        following = group.end + 1


def _uids(manifest: Manifest) -> list[str]:
    return sorted({*manifest.states, *manifest.sources, *manifest.commits})


def _describe(manifest: Manifest, uid: str) -> DroppedState | None:
    """Return the state that would be lost with this uid; None if the uid has no state."""
    info = next((info for info in manifest.operators if info.uid == uid), None)
    state = manifest.states.get(uid, OperatorState())
    contents = []
    if any(handle.get("files") for handle in state.keyed):
        names = sorted(
            {*(info.states if info else ()), *(name for handle in state.keyed for name in handle.get("states", ()))}
        )
        contents.append(f"keyed state {', '.join(names)}" if names else "keyed state")
    operator_names = sorted(
        {name for snapshot in state.operator for name, value in snapshot.items() if _has_items(value)}
    )
    if operator_names:
        contents.append(f"operator state {', '.join(operator_names)}")
    splits = manifest.sources[uid].splits if uid in manifest.sources else []
    if splits:
        contents.append(f"positions of {len(splits)} splits")
    commits = manifest.commits.get(uid, [])
    if commits:
        contents.append(f"{len(commits)} pending commits, whose output would never be committed")
    return DroppedState(uid, info.name if info else "unknown operator", contents) if contents else None


def _has_items(value: Any) -> bool:
    return bool(value.get("items", value)) if isinstance(value, dict) else bool(value)


def _refuse(manifest: Manifest, refused: list[DroppedState], by_uid: dict[str, NewOperator]) -> RestoreRefused:
    known = {*manifest.states, *manifest.sources}
    stateless = [uid for uid in by_uid if uid not in known]
    lines = [f"{_name(manifest)} has state that belongs to no operator of this job:"]
    for dropped in refused:
        near = difflib.get_close_matches(dropped.uid, stateless, n=2, cutoff=0.6)
        hint = f" - was it renamed to {' or '.join(map(repr, near))}?" if near else ""
        lines.append(f"    {dropped}{hint}")
    matched = [uid for uid in by_uid if uid in known]
    lines.append(f"  operators of this job with state in it: {_list(matched)}")
    lines.append(f"  operators of this job without state in it: {_list(stateless)}")
    if not matched:
        lines.append(f"  nothing matches: the snapshot belongs to job {manifest.job_id} ({manifest.job_name!r})")
    uids = ", ".join(repr(dropped.uid) for dropped in refused)
    options = " ".join(f"--allow-non-restored-state {dropped.uid}" for dropped in refused)
    return RestoreRefused(
        "\n".join(lines),
        remedy="give the operator its former uid; or, if you no longer need the state, allow the restore to drop it: "
        f"allow_non_restored_state=[{uids}] ({options})",
    )


def _name(manifest: Manifest) -> str:
    return f"{manifest.kind} {manifest.checkpoint_id} of job {manifest.job_name!r}"


def _list(uids: list[str]) -> str:
    return ", ".join(repr(uid) for uid in uids) or "none"
