"""Checks that the log still has the changes of the source's tables.

In the log, a table that was dropped, renamed or removed from the publication looks like a table without changes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.common.errors import SourceError
from penstock.connectors.postgres.cdc.messages import Relation
from penstock.connectors.postgres.cdc.server_facts import published_now
from penstock.connectors.postgres.client import package

if TYPE_CHECKING:
    from penstock.connectors.postgres.cdc.settings import CdcSettings

logger = logging.getLogger(__name__)

LOOK_S = 30.0
"""Interval of the checks of the publication, in seconds."""


class WatchedTables:
    """The tables of the source, and their OIDs.

    Args:
        names: "schema.table", the names in the log.
        oids: known OIDs of the tables, by name.
    """

    def __init__(self, source: CdcSettings, names: Sequence[str], oids: Mapping[str, int]) -> None:
        self._source = source
        self._names = list(names)
        self.oids = dict(oids)
        self._looked_at = 0.0

    def look(self) -> None:
        """Check that the publication still has the tables.

        Raises:
            SourceError: the publication no longer has a table, another table has its name, or the server does not respond.
        """
        self._looked_at = time.monotonic()
        with self._source.server.connect(SourceError, autocommit=True) as connection:
            published, oids = published_now(connection, self._source, self._names)
        missing = [name for name in self._names if name not in published]
        if missing:
            raise self._lost(
                f"publication {self._source.publication!r} no longer has {', '.join(missing)}, whose changes this job reads. "
                "The table was dropped, renamed or removed from the publication"
            )
        for name, oid in oids.items():
            self._check(name, oid)
        self.oids |= oids

    def look_now_and_then(self) -> None:
        """Call `look` if the interval has passed. Ignore a server that does not respond, because the stream reports a lost server."""
        if time.monotonic() - self._looked_at < LOOK_S:
            return
        try:
            self.look()
        except (SourceError, package().Error) as error:
            if isinstance(error, SourceError) and error.__cause__ is None:
                raise
            logger.info("the publication on %s cannot be checked: %s", self._source.server.shown, error)

    def check(self, relation: Relation) -> None:
        """Check the name and OID of a table in the log.

        Raises:
            SourceError: another table has the name of a table of the source, or the source's table has a new name.
        """
        was = next((name for name, oid in self.oids.items() if oid == relation.oid), relation.name)
        if was != relation.name:
            raise self._lost(f"table {was!r}, whose changes this job reads, is now called {relation.name!r}")
        self._check(relation.name, relation.oid)

    def _check(self, name: str, oid: int) -> None:
        if self.oids.get(name, oid) != oid:
            raise self._lost(
                f"table {name!r} is not the table whose changes were read. It was dropped and created again"
            )

    def _lost(self, problem: str) -> SourceError:
        return SourceError(
            f"{self._source.server.shown}: {problem}. Changes from then on are lost",
            remedy="remove the table from the source. Or restore its name and add it to the publication (alter publication … add table …). "
            "Then start without the state of this source, which reads all rows again",
        )
