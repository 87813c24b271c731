"""Faults of the Kafka brokers of a soak's job. They affect one broker at a time, because the others have all records."""

from __future__ import annotations

import random
import time

from tests.chaos.running_job import RunningJob
from tools.servers.kafka import KafkaServer

AWAY_S = 6.0
"""The maximum time that a broker is down, in seconds."""


class BrokerFaults:
    """The faults. Each returns whether it took effect, like `tests.chaos.faults.kinds.Fault.do`."""

    def __init__(self, job: RunningJob, brokers: KafkaServer) -> None:
        self._job = job
        self._brokers = brokers

    def kill(self, rng: random.Random) -> bool:
        broker = rng.choice(self._brokers.nodes)
        self._brokers.kill(broker)
        self._restore_broker(broker, rng)
        return True

    def stand_still(self, rng: random.Random) -> bool:
        broker = rng.choice(self._brokers.nodes)
        self._brokers.pause(broker)
        time.sleep(rng.uniform(0.5, AWAY_S))
        self._brokers.resume(broker)
        return True

    def kill_with_the_master(self, rng: random.Random) -> bool:
        broker = rng.choice(self._brokers.nodes)
        self._job.master.note()
        self._job.master.kill()
        self._brokers.kill(broker)
        self._job.start()
        self._restore_broker(broker, rng)
        return True

    def _restore_broker(self, broker: int, rng: random.Random) -> None:
        time.sleep(rng.uniform(0.0, AWAY_S))
        self._brokers.restart(broker)
