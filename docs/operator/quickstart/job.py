"""Count by key, for ever: 100 numbers a second, and how many of each last digit there were so far."""

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(
    DataGeneratorSource(lambda index: (index % 10, 1), records_per_second=100.0, splits=8),
    WatermarkStrategy.no_watermarks(),
    "numbers",
).uid("numbers")
counts = numbers.key_by(lambda number: number[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")
counts.print().uid("print")
env.execute("quickstart")
