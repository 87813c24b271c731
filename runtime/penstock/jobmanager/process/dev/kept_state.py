"""The state of a snapshot that a changed program can use, and the reasons why it cannot use the other state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from penstock.checkpoint.files.manifest import Manifest
from penstock.checkpoint.recovery.restore import plan_restore
from penstock.checkpoint.savepoint.savepoints import write_savepoint
from penstock.checkpoint.savepoint.snapshots import resolve
from penstock.checkpoint.store.retrying_store import Stores
from penstock.common.errors import PenstockError
from penstock.graph.job_graph import JobGraph
from penstock.jobmanager.job.checkpoints import operator_infos
from penstock.jobmanager.validation.declared_state import check_stored_states
from penstock.jobmanager.validation.runtime_mode import check_runtime_mode
from penstock.jobmanager.validation.state_meaning import check_state_meaning


class LostState(msgspec.Struct, frozen=True):
    """State that a changed program cannot use. `operator`: name of the operator."""

    operator: str
    reason: str


class KeptState(msgspec.Struct, frozen=True):
    """The result of `keep`. `url`: the snapshot to restore, or an empty string if nothing is kept. `kept`: names of operators.

    `changes`: texts on state that is restored in another form.
    """

    url: str
    kept: list[str]
    lost: list[LostState]
    changes: list[str]


def keep(
    graph: JobGraph, url: str, folder: str, options: Mapping[str, Any] | None = None, refused: Collection[str] = ()
) -> KeptState:
    """Return the snapshot with the state that the program can use.

    Args:
        url: snapshot of the former program. It is not changed.
        folder: folder for a savepoint without the state that does not fit.
        refused: names of operators whose tasks have refused their state.

    Raises:
        SnapshotNotFound, SnapshotTorn, StateFormatUnsupported, StorageError: the snapshot cannot be read.
    """
    stores = Stores(options)
    snapshot = resolve(url, stores=stores)
    manifest, lost, changes = fit(graph, snapshot.manifest, refused)
    names = {node.uid: node.name for node in graph.operators}
    kept = [names[uid] for uid in names if _has_state(manifest, uid)]
    if not kept:
        return KeptState("", [], lost, [])
    if lost:
        url = write_savepoint(manifest, snapshot.base_url, folder, stores)
    return KeptState(url, kept, lost, changes)


def fit(
    graph: JobGraph, manifest: Manifest, refused: Collection[str] = ()
) -> tuple[Manifest, list[LostState], list[str]]:
    """Return the manifest without the state that the program cannot use, the lost state, and what a restore changes."""
    infos = operator_infos(graph)
    gone = _only(manifest, _uids(manifest) - {node.uid for node in graph.operators})
    lost = [
        LostState(found.name, f"no operator has the uid {found.uid!r} ({', '.join(found.contents)})")
        for found in plan_restore(gone, infos, allow_non_restored=True).dropped
    ]
    kept, changes = [], []
    for node in graph.operators:
        alone = _only(manifest, (node.uid,))
        if not _has_state(alone, node.uid):
            continue
        try:
            if node.name in refused:
                raise PenstockError("its function declares the state with another type")
            plan_restore(alone, infos)
            check_runtime_mode(graph, alone)
            changes += [str(change) for change in check_state_meaning(graph, alone)]
            check_stored_states(graph, alone)
            kept.append(node.uid)
        except PenstockError as error:
            lost.append(LostState(node.name, error.message))
    return (_only(manifest, kept) if lost else manifest), lost, changes


def _uids(manifest: Manifest) -> set[str]:
    return {*manifest.states, *manifest.sources, *manifest.commits}


def _has_state(manifest: Manifest, uid: str) -> bool:
    state = manifest.states.get(uid)
    source = manifest.sources.get(uid)
    return bool(
        (state is not None and (any(handle.get("files") for handle in state.keyed) or any(state.operator)))
        or (source is not None and source.splits)
        or manifest.commits.get(uid)
    )


def _only(manifest: Manifest, uids: Collection[str]) -> Manifest:
    """Return the manifest with the state of these operators."""
    return msgspec.structs.replace(
        manifest,
        states={uid: state for uid, state in manifest.states.items() if uid in uids},
        sources={uid: source for uid, source in manifest.sources.items() if uid in uids},
        commits={uid: items for uid, items in manifest.commits.items() if uid in uids},
    )
