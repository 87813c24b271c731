"""The specs whose settings give access to the storage of an incarnation. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.context import Context


def storage_specs(ctx: Context) -> tuple[FlinkJobSpec, ...]:
    """Return the specs whose settings give access to the storage of the running incarnation, in the order to try
    them.

    The incarnation's own spec comes first, because it works even if an edit is wrong. These settings stop working if a
    Secret with another name has replaced the incarnation's Secret. The edited spec may then have the right settings.
    """
    running_spec = ctx.running_spec
    if running_spec is None or ctx.spec is None:
        return tuple(s for s in (running_spec, ctx.spec) if s is not None)
    same = running_spec.storage.secret_name == ctx.spec.storage.secret_name and same_store(running_spec, ctx.spec)
    return (running_spec,) if same else (running_spec, ctx.spec)


def disposal_specs(ctx: Context, revision: str | None) -> tuple[FlinkJobSpec, ...]:
    """Return the specs whose settings can delete the checkpoints of an incarnation of `revision`, in the order to try
    them.

    The incarnation's own spec comes first, then other specs with the same store. In another store, nothing would be
    deleted, but the store would report success.
    """
    found = (
        ctx.revision_spec(revision),
        ctx.running_spec,
        ctx.revision_spec(ctx.status.stable_revision),
        ctx.effective_spec,
    )
    specs = [spec for spec in found if spec is not None]
    distinct = {spec.storage.secret_name: spec for spec in reversed(specs) if same_store(specs[0], spec)}
    return tuple(sorted(distinct.values(), key=specs.index))


def same_store(one: FlinkJobSpec, other: FlinkJobSpec) -> bool:
    """Return whether two specs refer to the same object store. Only their keys may differ."""
    return _store(one) == _store(other)


def _store(spec: FlinkJobSpec) -> dict[str, object]:
    return {key: value for key, value in spec.configuration.items() if key.startswith("s3.")}
