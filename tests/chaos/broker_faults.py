"""What can be done to the Kafka brokers that a soak's job reads from and writes to. One broker at a time: the others have all records."""

from __future__ import annotations

import random
import time

from tests.chaos.running_job import RunningJob
from tools.kafkaserver import KafkaServer

AWAY_S = 6.0
"""A broker is away for that long at most."""


class BrokerFaults:
    """Each says whether it took effect, as `tests.chaos.faults.Fault.do` does."""

    def __init__(self, job: RunningJob, brokers: KafkaServer) -> None:
        self._job = job
        self._brokers = brokers

    def kill(self, rng: random.Random) -> bool:
        broker = rng.choice(self._brokers.nodes)
        self._brokers.kill(broker)
        self._come_back(broker, rng)
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
        self._come_back(broker, rng)
        return True

    def _come_back(self, broker: int, rng: random.Random) -> None:
        time.sleep(rng.uniform(0.0, AWAY_S))
        self._brokers.restart(broker)
