"""Pattern matching: find sequences of events in a stream, with the names and the meaning of Flink CEP.

>>> from penstock.cep import CEP, Pattern
>>> from penstock.datastream import StreamExecutionEnvironment
>>> pattern = Pattern.begin("low").where(lambda n: n < 3).followed_by("high").where(lambda n: n > 7)
>>> env = StreamExecutionEnvironment.get_execution_environment()
>>> numbers = env.from_collection([1, 5, 9, 8])
>>> matches = CEP.pattern(numbers, pattern).in_processing_time().select(lambda match: (match["low"][0], match["high"][0]))
>>> list(matches.execute_and_collect())
[(1, 9)]
"""

from penstock.cep.after_match_skip_strategy import AfterMatchSkipStrategy
from penstock.cep.conditions import IterativeCondition, RichIterativeCondition, SimpleCondition
from penstock.cep.functions import (
    PatternFlatSelectFunction,
    PatternFlatTimeoutFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternTimeoutFunction,
    TimedOutPartialMatchHandler,
)
from penstock.cep.pattern import GroupPattern, Pattern, WithinType
from penstock.cep.pattern_stream import CEP, PatternStream

__all__ = [
    "CEP",
    "AfterMatchSkipStrategy",
    "GroupPattern",
    "IterativeCondition",
    "Pattern",
    "PatternFlatSelectFunction",
    "PatternFlatTimeoutFunction",
    "PatternProcessFunction",
    "PatternSelectFunction",
    "PatternStream",
    "PatternTimeoutFunction",
    "RichIterativeCondition",
    "SimpleCondition",
    "TimedOutPartialMatchHandler",
    "WithinType",
]
