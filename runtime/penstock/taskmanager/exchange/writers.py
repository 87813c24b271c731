"""The choice of an exchange's writer. This is the only module that knows all writers."""

from __future__ import annotations

import random

from penstock.graph.job_graph import ExchangeSpec
from penstock.graph.transformation import Exchange
from penstock.taskmanager.exchange.broadcast import BroadcastWriter
from penstock.taskmanager.exchange.chosen_target import ChosenTargetWriter, Partitioner
from penstock.taskmanager.exchange.key_group import KeyGroupWriter, OneKeyedTargetWriter
from penstock.taskmanager.exchange.round_robin import RoundRobinWriter, rescale_share
from penstock.taskmanager.exchange.single_target import GlobalWriter, SingleTargetWriter
from penstock.taskmanager.exchange.writer import Emit, ExchangeWriter


def create_writer(spec: ExchangeSpec, sender: int, emit: Emit) -> ExchangeWriter:
    """Return the writer for an exchange in one sending subtask."""
    partitioning, targets = spec.partitioning, spec.parallelism
    match partitioning.exchange:
        case Exchange.FORWARD:
            return SingleTargetWriter(spec, sender, emit, sender)
        case Exchange.GLOBAL:
            return GlobalWriter(spec, sender, emit)
        case Exchange.KEY_GROUP:
            return OneKeyedTargetWriter(spec, sender, emit) if targets == 1 else KeyGroupWriter(spec, sender, emit)
        case Exchange.BROADCAST:
            return BroadcastWriter(spec, sender, emit)
        case Exchange.REBALANCE:
            return RoundRobinWriter(spec, sender, emit, range(targets))
        case Exchange.RESCALE:
            return RoundRobinWriter(spec, sender, emit, rescale_share(sender, spec.source_parallelism, targets))
        case Exchange.SHUFFLE:
            rng = random.Random()
            return ChosenTargetWriter(spec, sender, emit, lambda vs: [rng.randrange(targets) for _ in vs])
        case Exchange.CUSTOM:
            return ChosenTargetWriter(spec, sender, emit, Partitioner(spec))
