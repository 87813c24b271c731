"""`HybridSource`: a sequence of sources, for example the files of past years and then a topic with new records.

A source begins when every split of its predecessor was read to its end. The checkpoint contains the index of the current
source, the state of its enumerator and its splits. So a restore can continue in the middle of any source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.connectors.core.source import (
    EnumeratorContext,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)

SWITCH_MS = 200
"""Interval in ms at which the enumerator checks whether the current source was read to its end."""


class HybridSource(Source):
    """A source that `builder()` makes. All its sources produce records of one kind. Each source defines where it begins (offsets,
    timestamps)."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = tuple(sources)
        self.bounded = self.sources[-1].bounded
        self.in_order = all(source.in_order for source in self.sources)
        self.needs_last_positions = any(source.needs_last_positions for source in self.sources)
        self.counts_lag_in_records = all(source.counts_lag_in_records for source in self.sources)
        self.needs_spark = any(source.needs_spark for source in self.sources)

    @staticmethod
    def builder(first_source: Source) -> HybridSourceBuilder:
        """Return a builder that begins with this source.

        >>> from penstock.datastream.connectors.number_seq import NumberSequenceSource
        >>> HybridSource.builder(NumberSequenceSource(1, 2)).add_source(NumberSequenceSource(3, 4)).build().bounded
        True
        """
        return HybridSourceBuilder(first_source)

    def with_object_store_options(self, options: dict[str, Any]) -> HybridSource:
        return HybridSource([source.with_object_store_options(options) for source in self.sources])

    @property
    def sole_use(self) -> str | None:
        return self.sources[-1].sole_use

    def create_enumerator(self) -> SplitEnumerator:
        return HybridEnumerator(self.sources)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return HybridReader(self.sources, context)

    def produced_type(self) -> Any:
        first, *others = [source.produced_type() for source in self.sources]
        return first if all(other == first for other in others) else None

    def side_output_tags(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tag for source in self.sources for tag in source.side_output_tags()))

    def validate(self) -> None:
        for source in self.sources:
            source.validate()

    def check_checkpoints(self, interval_ms: int) -> None:
        for source in self.sources:
            source.check_checkpoints(interval_ms)


class HybridSourceBuilder:
    """PyFlink's builder."""

    def __init__(self, first_source: Source) -> None:
        self._sources = [first_source]

    def add_source(self, source: Source) -> HybridSourceBuilder:
        """Add the source that the job reads next."""
        self._sources.append(source)
        return self

    def build(self) -> HybridSource:
        """Return the source.

        Raises:
            InvalidJob: a source other than the last source never ends.
        """
        for number, source in enumerate(self._sources[:-1], 1):
            if not source.bounded:
                raise InvalidJob(
                    f"source {number} of a hybrid source never ends: {type(source).__name__}",
                    remedy="make it bounded (set_bounded(…)), or add it as the last source",
                )
        return HybridSource(self._sources)


class HybridEnumerator(SplitEnumerator):
    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._context: EnumeratorContext | None = None
        self._index = 0
        self._has_discovered = False
        self._open: set[str] = set()
        """Ids (with the source's index) of the current source's splits that were not read to their end."""
        self._present: SplitEnumerator | None = None

    @property
    def _is_last(self) -> bool:
        return self._index == len(self._sources) - 1

    @property
    def discovery_interval_ms(self) -> int | None:  # type: ignore[override]
        return self._enumerator().discovery_interval_ms if self._is_last else SWITCH_MS

    @property
    def forgets_finished(self) -> bool:  # type: ignore[override]
        """Return False only if the current source is the last source and remembers finished splits. Earlier sources
        discover splits once."""
        return not self._is_last or self._enumerator().forgets_finished

    def start(self, context: EnumeratorContext) -> None:
        self._context = context

    def _enumerator(self) -> SplitEnumerator:
        if self._present is None:
            self._present = self._sources[self._index].create_enumerator()
            self._present.parallelism = self.parallelism
            if self._context is not None:
                self._present.start(self._context)
        return self._present

    def discover(self) -> list[Split]:
        if self._has_discovered and not self._is_last and not self._open:
            self.close()
            self._index, self._has_discovered = self._index + 1, False
        if self._has_discovered and not self._is_last:
            return []
        found = [_wrapped(self._index, split) for split in self._enumerator().discover()]
        self._has_discovered = True
        self._open.update(split.id for split in found)
        return found

    def is_finished(self) -> bool:
        return self._is_last and self._has_discovered and self._enumerator().is_finished()

    def snapshot(self) -> Any:
        state = self._enumerator().snapshot()
        return {"index": self._index, "asked": self._has_discovered, "open": sorted(self._open), "state": state}

    def restore(self, state: Any) -> None:
        if state is not None:
            self._index, self._has_discovered, self._open = state["index"], state["asked"], set(state["open"])
            self._enumerator().restore(state["state"])

    def outdated(self, splits: Sequence[Split]) -> set[str]:
        inner = [_unwrapped(split)[1] for split in splits if split.properties["source"] == self._index]
        found = {f"{self._index}:{id}" for id in self._enumerator().outdated(inner)} if inner else set()
        self._open -= found
        if found:
            self._has_discovered = False
        return found

    def on_split_ended(self, split: Split, position: Any) -> None:
        self._open.discard(split.id)
        index, inner = _unwrapped(split)
        if index == self._index:
            self._enumerator().on_split_ended(inner, position)

    def close(self) -> None:
        if self._present is not None:
            self._present.close()
            self._present = None


class HybridReader(SourceReader):
    def __init__(self, sources: Sequence[Source], context: ReaderContext) -> None:
        self._sources = sources
        self._context = context
        self._readers: dict[int, SourceReader] = {}

    def _reader(self, index: int) -> SourceReader:
        if index not in self._readers:
            self._readers[index] = self._sources[index].create_reader(self._context)
        return self._readers[index]

    def open_split(self, split: Split, position: Any) -> SplitReader:
        index, inner = _unwrapped(split)
        return self._reader(index).open_split(inner, position)

    def lag_of(self, split: Split, position: Any) -> int | None:
        index, inner = _unwrapped(split)
        return self._reader(index).lag_of(inner, position)

    def snapshot(self, checkpoint_id: int) -> None:
        for reader in self._readers.values():
            reader.snapshot(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for reader in self._readers.values():
            reader.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


def _wrapped(index: int, split: Split) -> Split:
    return replace(split, id=f"{index}:{split.id}", properties={"source": index, "split": split.properties})


def _unwrapped(split: Split) -> tuple[int, Split]:
    index = split.properties["source"]
    inner = replace(split, id=split.id.partition(":")[2], properties=split.properties["split"])
    return index, inner
