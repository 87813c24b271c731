"""A simulated two-phase commit sink, which simulations of the checkpoint protocol share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Piece:
    """Numbers that an attempt has written. `state`: `open`, `visible` or `removed`."""

    epoch: int
    numbers: list[int]
    state: str = "open"


@dataclass
class SimulatedSink:
    """The pieces by their names, and the violations of the protocol."""

    pieces: dict[str, Piece] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def commit(self, names: list[str]) -> None:
        for name in names:
            if self.pieces[name].state == "removed":
                self.violations.append(f"{name} was to be committed but had been removed: its records are lost")
            self.pieces[name].state = "visible"

    def discard(self, epoch: int, kept: set[str]) -> None:
        """Remove the open pieces of earlier epochs, except for some."""
        for name, piece in self.pieces.items():
            if piece.epoch < epoch and piece.state == "open" and name not in kept:
                piece.state = "removed"

    def visible(self) -> Counter[int]:
        return Counter(n for piece in self.pieces.values() if piece.state == "visible" for n in piece.numbers)
