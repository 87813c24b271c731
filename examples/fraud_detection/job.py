"""Detect a small payment that a large one follows, by rules that change while the job runs.

python job.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import DataStream, KeyedBroadcastProcessFunction
from penstock.datastream import StreamExecutionEnvironment as Environment
from penstock.datastream.state import ListState, MapStateDescriptor, list_state


class Payment(NamedTuple):
    account: str
    time: int  # ms since the epoch
    amount: int


class Rule(NamedTuple):
    name: str
    time: int  # the rule applies from here, ms since the epoch
    small: int  # the first payment is at most this amount
    large: int  # and the second payment is at least this amount
    within: int  # ms between the two payments


class Alert(NamedTuple):
    rule: str
    account: str
    amount: int
    time: int


RULES = MapStateDescriptor("rules", str, list[Rule])
"""The newest two versions of each rule, by name. A payment that waits can need the earlier one."""


class Detector(KeyedBroadcastProcessFunction):
    """Apply the rules to the payments of an account.

    Payments wait for the watermark, which is the lower of both streams. All rules up to their time have then arrived.
    Alerts depend only on the times of payments and rules, not on the order of their arrival.
    """

    waiting: ListState[Payment] = list_state(Payment)
    recent: ListState[Payment] = list_state(Payment)  # payments that a rule may need as the first one

    def process_broadcast_element(self, value: Rule, ctx: Any) -> None:
        rules = ctx.get_broadcast_state(RULES)
        versions = [*(rules.get(value.name) or []), value]
        rules.put(value.name, sorted(versions, key=lambda rule: rule.time)[-2:])

    def process_element(self, value: Payment, ctx: Any) -> None:
        self.waiting.add(value)
        ctx.timer_service().register_event_time_timer(value.time)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Alert]:
        versions = [found for _, found in ctx.get_broadcast_state(RULES).items()]
        valid = [rule for found in versions for rule in [rule for rule in found if rule.time <= timestamp][-1:]]
        longest = max((rule.within for found in versions for rule in found), default=0)
        recent = [payment for payment in self.recent if payment.time >= timestamp - longest]
        for payment in [payment for payment in self.waiting if payment.time == timestamp]:
            for rule in valid:
                if payment.amount >= rule.large and any(is_first(rule, earlier, timestamp) for earlier in recent):
                    yield Alert(rule.name, payment.account, payment.amount, payment.time)
            recent.append(payment)
        self.recent.update(recent)
        self.waiting.update([payment for payment in self.waiting if payment.time > timestamp])


def is_first(rule: Rule, payment: Payment, timestamp: int) -> bool:
    """Return whether the payment is small and recent enough to be the first one of the rule."""
    return payment.amount <= rule.small and payment.time >= timestamp - rule.within


def build(payments: DataStream[Payment], rules: DataStream[Rule]) -> DataStream[Alert]:
    """Build the job on a stream of payments and a stream of rules. Both need watermarks."""
    connected = payments.key_by("account").connect(rules.broadcast(RULES))
    return connected.process(Detector()).name("detector").uid("detector")


PAYMENTS = [
    Payment("ann", 1_000, 1),
    Payment("bob", 2_000, 40),
    Payment("ann", 3_000, 600),  # 2 s after a payment of 1
    Payment("bob", 4_000, 900),  # no small payment before
    Payment("eve", 61_000, 1),
    Payment("eve", 62_000, 350),  # only large after the change of the rule
    Payment("ann", 63_000, 700),  # 62 s after the payment of 1
]
CHANGES = [Rule("test payment", 0, 5, 500, 10_000), Rule("test payment", 60_000, 5, 300, 10_000)]


def main() -> None:
    env = Environment.get_execution_environment()
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    payments = env.from_collection(PAYMENTS).uid("payments").assign_timestamps_and_watermarks(times).uid("times")
    rules = env.from_collection(CHANGES).uid("rules").assign_timestamps_and_watermarks(times).uid("rule-times")
    build(payments, rules).print()
    env.execute("fraud-detection")


if __name__ == "__main__":
    main()
