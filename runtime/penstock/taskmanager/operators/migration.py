"""Migration of restored state. It runs when an operator opens and the program has changed the meaning of the operator's
state.

The migration rewrites all state, because the next snapshot describes all of it with the new meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.graph.state_meaning.describe import aggregates_of
from penstock.windowing.field_migration import FieldMigration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.state.backend import KeyedStateBackend
    from penstock.state.descriptors import ValueStateDescriptor
    from penstock.windowing.aggregates import FieldAggregate


def migrate_accumulators(
    backend: KeyedStateBackend,
    descriptor: ValueStateDescriptor,
    former: Sequence[Sequence[Any]],
    aggregate: FieldAggregate,
) -> None:
    """Rewrite the accumulators of all keys and namespaces, if the aggregates have changed.

    Args:
        former: kind and field of each aggregate that wrote the accumulators.
    """
    migration = FieldMigration(former, aggregates_of(aggregate))
    if not migration.is_needed:
        return
    table, name = backend.raw_table(descriptor), descriptor.name
    for namespace in list(backend.namespaces(name)):
        for key in list(backend.keys(name, namespace)):
            accumulator = table.get(key, namespace)
            if accumulator is not None:
                table.put(key, migration.migrate(accumulator), namespace)
