"""Count the visits of pages, from a stream of Redis to documents of OpenSearch.

An entry's field `value` is `{"page": "p7", "seconds": 12}`, and `page:p7` is a hash with `title` and `section`. The id of a
page's document is the page. OpenSearch therefore has one document per page with its last count, also after a failure. Readers
of the documents see each visit counted exactly once.

The README has the commands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.async_data_stream import AsyncDataStream
from penstock.datastream.connectors.opensearch import OpenSearchSink
from penstock.datastream.connectors.redis import RedisLookup, RedisStreamSource
from penstock.datastream.formats.json import JsonLinesFormat
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


class Visit(NamedTuple):
    page: str
    seconds: int


class TitledVisit(NamedTuple):
    page: str
    seconds: int
    title: str
    section: str


class PageCount(NamedTuple):
    page: str
    title: str
    section: str
    visits: int
    seconds: int


def titled(visit: Visit, page: dict[str, str] | None) -> list[TitledVisit]:
    """Return the visit with the page's title and section. A page without a description also counts."""
    known = page or {}
    return [TitledVisit(*visit, known.get("title") or visit.page, known.get("section") or "unknown")]


class Counts(KeyedProcessFunction):
    """A function that emits, for each visit, the number and total seconds of the page's visits so far."""

    def open(self, runtime_context: Any) -> None:
        self.visits = runtime_context.get_state(ValueStateDescriptor("visits", int))
        self.seconds = runtime_context.get_state(ValueStateDescriptor("seconds", int))

    def process_element(self, value: TitledVisit, ctx: Any) -> Iterator[PageCount]:
        visits, seconds = (self.visits.value() or 0) + 1, (self.seconds.value() or 0) + value.seconds
        self.visits.update(visits)
        self.seconds.update(seconds)
        yield PageCount(value.page, value.title, value.section, visits, seconds)


def build(env: StreamExecutionEnvironment, redis: str, opensearch: str, **who: str) -> None:
    """Build the job: visits -> with titles -> by page -> counts.

    Args:
        who: credentials for OpenSearch: user, password_file.
    """
    source = RedisStreamSource(redis, ["visits"], JsonLinesFormat(Visit), may_be_missing=True)
    visits = env.from_source(source, WatermarkStrategy.no_watermarks(), "visits").uid("visits")
    pages = RedisLookup(
        redis,
        key=lambda visit: f"page:{visit.page}",
        fields=["title", "section"],
        join=titled,
        ttl=timedelta(minutes=5),
    )
    with_titles = AsyncDataStream.unordered_wait(visits, pages, timedelta(seconds=30), 1000, output_type=TitledVisit)
    with_titles = with_titles.name("titles").uid("titles")
    counts = with_titles.key_by("page").process(Counts(), output_type=PageCount).name("counts").uid("counts")
    sink = OpenSearchSink(opensearch, lambda count: {"_id": count.page, "_source": count}, index="pages", **who)  # type: ignore[arg-type]
    counts.sink_to(sink).name("counts to OpenSearch").uid("counts-sink")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--redis", default=os.environ.get("REDIS_URL", "redis://localhost:6379"))
    arguments.add_argument("--opensearch", default=os.environ.get("OPENSEARCH_URL", "http://localhost:9200"))
    arguments.add_argument("--user", default="", help="user of OpenSearch")
    arguments.add_argument("--password-file", default="", help="file with the password of this user")
    options, _ = arguments.parse_known_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, options.redis, options.opensearch, user=options.user, password_file=options.password_file)
    env.execute("redis opensearch")


if __name__ == "__main__":
    main()
