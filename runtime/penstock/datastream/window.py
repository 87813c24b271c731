"""Windows on streams: assigners, triggers, evictors, window classes, under PyFlink's names.

    stream.key_by("station").window(TumblingEventTimeWindows.of(timedelta(days=1))).reduce(max)

What windows do with time, late records and state is told in `docs/time.md`.
"""

from penstock.datastream.windowing.aggregates import FieldAggregate
from penstock.datastream.windowing.assigner import MergingWindowAssigner, WindowAssigner
from penstock.datastream.windowing.count_windows import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    GlobalWindows,
)
from penstock.datastream.windowing.evictor import CountEvictor, DeltaEvictor, Evictor, TimeEvictor, TimestampedValue
from penstock.datastream.windowing.sessions import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from penstock.datastream.windowing.time_windows import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.datastream.windowing.trigger import EventTimeTrigger, ProcessingTimeTrigger, Trigger, TriggerResult
from penstock.datastream.windowing.trigger_library import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    NeverTrigger,
    PurgingTrigger,
)
from penstock.datastream.windowing.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    Window,
    WindowSerializer,
)

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "CountWindowSerializer",
    "DeltaEvictor",
    "DeltaTrigger",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "FieldAggregate",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "GlobalWindows",
    "MergingWindowAssigner",
    "NeverTrigger",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeEvictor",
    "TimeWindow",
    "TimeWindowSerializer",
    "TimestampedValue",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Window",
    "WindowAssigner",
    "WindowSerializer",
]
