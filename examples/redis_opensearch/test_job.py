"""Tests in one process, without Redis and without OpenSearch."""

from __future__ import annotations

from job import Counts, PageCount, TitledVisit, Visit, titled

from penstock.testing import JobHarness


def test_a_visit_gets_the_title_of_its_page() -> None:
    visit = Visit("p7", 12)
    assert titled(visit, {"title": "Page 7", "section": "news"}) == [TitledVisit("p7", 12, "Page 7", "news")]
    assert titled(visit, None) == [TitledVisit("p7", 12, "p7", "unknown")]


def test_each_visit_emits_the_new_count_of_its_page_also_after_a_crash() -> None:
    with JobHarness(parallelism=2) as harness:
        visits = harness.source("visits", type_info=TitledVisit)
        harness.collect(visits.key_by("page").process(Counts(), output_type=PageCount), "counts")
        harness.push("visits", TitledVisit("p1", 10, "One", "news"), TitledVisit("p2", 1, "Two", "sport"))
        harness.snapshot()
        harness.crash()
        harness.push("visits", TitledVisit("p1", 5, "One", "news"))
        assert sorted(harness.outputs("counts")) == [
            PageCount("p1", "One", "news", 1, 10),
            PageCount("p1", "One", "news", 2, 15),
            PageCount("p2", "Two", "sport", 1, 1),
        ]
