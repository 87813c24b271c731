"""Records between real processes arrive with the same value and type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penstock.graph.executor import executing_on
from tests import round_trips
from tests.integration.engine.selfcheck.driver import environment
from tests.strategies import SAMPLES

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_record_type_survives_every_transfer(
    executor: EmbeddedExecutor, settings: dict[str, str], parallelism: int
) -> None:
    settings |= {"restart-strategy.type": "none"}
    round_trips.run(environment(settings, parallelism), executor, SAMPLES, parallelism)


def test_classes_of_the_main_program_survive_transfers(executor: EmbeddedExecutor, settings: dict[str, str]) -> None:
    class Size(Enum):
        SMALL = 1

    @dataclass(frozen=True)
    class Local:
        number: int
        value: Any
        size: Size

    def look(record: Local) -> tuple[int, bool, bool, bool]:
        return record.number, type(record) is Local, type(record.value) is np.float32, record.size is Size.SMALL

    env = environment(settings | {"restart-strategy.type": "none"}, 2)
    made = env.from_collection(list(range(20))).rebalance().map(lambda n: Local(n, np.float32(n), Size.SMALL))
    with executing_on(executor), made.rebalance().map(look).execute_and_collect() as results:
        assert sorted(results, key=itemgetter(0)) == [(n, True, True, True) for n in range(20)]
