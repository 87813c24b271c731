"""Whether the log still has the changes of the tables that are read: one that was dropped, renamed or taken out of the publication looks like one that nobody
changes."""

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
    from penstock.connectors.postgres.cdc.source import PostgresCdcSource

logger = logging.getLogger(__name__)

LOOK_S = 30.0
"""Between two looks at the publication while the stream is read."""


class WatchedTables:
    """
    Args:
        names: "schema.table", as the log names them.
        oids: which tables the names meant, as far as that is known.
    """

    def __init__(self, source: PostgresCdcSource, names: Sequence[str], oids: Mapping[str, int]) -> None:
        self._source = source
        self._names = list(names)
        self.oids = dict(oids)
        self._looked_at = 0.0

    def look(self) -> None:
        """
        Raises:
            SourceError: a table is not in the publication any more, or another one has its name; or the server does not answer.
        """
        self._looked_at = time.monotonic()
        with self._source.server.connect(SourceError, autocommit=True) as connection:
            published, oids = published_now(connection, self._source, self._names)
        missing = [name for name in self._names if name not in published]
        if missing:
            raise self._lost(
                f"publication {self._source.publication!r} has no {', '.join(missing)} any more, of which this job reads the changes: "
                "dropped, renamed or taken out"
            )
        for name, oid in oids.items():
            self._check(name, oid)
        self.oids |= oids

    def look_now_and_then(self) -> None:
        """As `look`, if the last one is long ago; a server that does not answer will be noticed by the stream itself."""
        if time.monotonic() - self._looked_at < LOOK_S:
            return
        try:
            self.look()
        except (SourceError, package().Error) as error:
            if isinstance(error, SourceError) and error.__cause__ is None:
                raise
            logger.info("tables of %s cannot be looked at: %s", self._source.server.shown, error)

    def check(self, relation: Relation) -> None:
        """
        Raises:
            SourceError: the log has another table under a name that is read, or a table that is read under another name.
        """
        was = next((name for name, oid in self.oids.items() if oid == relation.oid), relation.name)
        if was != relation.name:
            raise self._lost(f"table {was!r}, whose changes are read, is now called {relation.name!r}")
        self._check(relation.name, relation.oid)

    def _check(self, name: str, oid: int) -> None:
        if self.oids.get(name, oid) != oid:
            raise self._lost(
                f"another table is called {name!r} than the one whose changes were read: dropped and made anew"
            )

    def _lost(self, what: str) -> SourceError:
        return SourceError(
            f"{self._source.server.shown}: {what}. Changes from then on are lost",
            remedy="leave the table out of the source; or give it its name back, put it into the publication (alter publication … add table …) and start "
            "without the state of this source, which reads all rows again",
        )
