"""Ten questions about a job that are answered on the dashboard, at most two clicks and ten seconds after the job's first page is opened."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from penstock.common.configuration import Configuration
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.requests import Operation
from penstock.state.key_groups import key_group, subtask_for_key_group
from tests.in_process import until
from tests.integration.dashboard import slow_job
from tests.integration.dashboard.browsing import SHOTS, accessible, watched
from tests.integration.engine.selfcheck.driver import configuration, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

    from penstock.jobmanager.job.job_master import JobMaster
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.spark]

ANSWER_S = 10.0
CLICKS = 2
LINES = Path(slow_job.__file__).read_text().splitlines()


class SlowJob:
    """A job that has failed once and then rescaled from 2 to 3 subtasks, and the server of its dashboard."""

    def __init__(self, executor: EmbeddedExecutor, folder: Path) -> None:
        fault = folder / "fault"
        env = environment(configuration("pipelined", folder.as_uri()), 2)
        slow_job.build(env, fault)
        with executing_on(executor):
            env.execute_async("reviews")
        self.job: JobMaster = executor.session.dispatcher.jobs()[-1]
        server = executor.session.serve(Configuration({"rest.port": "0"}))
        assert server is not None
        self.server = server
        self._completed(2)
        fault.touch()
        until(lambda: self.job.history.restarts == 1, self.job)
        self._completed(2)
        request = Operation("rescale", {"parallelism": 3})
        self.job.request(request)
        until(lambda: self.job.parallelism == 3 and self.job.history.status.value == "RUNNING", self.job)
        self._completed(2)

    def _completed(self, more: int) -> None:
        history = self.job.checkpoints.coordinator.history
        before = history.overview()["counts"]["completed"]
        until(lambda: history.overview()["counts"]["completed"] >= before + more, self.job)

    @property
    def hot_subtask(self) -> int:
        most = self.job.graph.max_parallelism
        return subtask_for_key_group(key_group(slow_job.BIG_CUSTOMER, most), self.job.parallelism, most)

    def close(self) -> None:
        self.job.request(Operation("cancel"))
        self.job.wait(30)
        self.server.stop()


class Visit:
    """A person at the job's first page, with a limited time and a limited number of clicks."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.clicks = 0
        self._deadline = time.monotonic() + ANSWER_S
        page.goto(url)

    @property
    def left_ms(self) -> float:
        return max(1.0, (self._deadline - time.monotonic()) * 1000)

    def click(self, what: Locator) -> None:
        self.clicks += 1
        assert self.clicks <= CLICKS
        what.click(timeout=self.left_ms)

    def read(self, where: Locator, answer: str) -> re.Match[str]:
        """Return the match of the answer's pattern in the text, as soon as it is there."""
        expect(where).to_contain_text(re.compile(answer), timeout=self.left_ms)
        found = re.search(answer, where.inner_text())
        assert found
        return found

    def fact(self, label: str) -> Locator:
        return self.page.locator("#head .fact", has_text=label).locator("dd")

    def vertex(self, name: str) -> Locator:
        return self.page.locator(".node", has_text=name)

    def link(self, name: str) -> Locator:
        return self.page.locator("#nav a", has_text=name)


@pytest.fixture(scope="module")
def slow(executor: EmbeddedExecutor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowJob]:
    made = SlowJob(executor, tmp_path_factory.mktemp("slow"))
    yield made
    made.close()


@pytest.fixture
def visit(browser: Browser, slow: SlowJob, request: pytest.FixtureRequest) -> Iterator[Visit]:
    SHOTS.mkdir(parents=True, exist_ok=True)
    for page in watched(browser, slow.server.url, "light"):
        visit = Visit(page, slow.server.url)
        yield visit
        page.screenshot(path=SHOTS / f"question-{request.node.originalname.removeprefix('test_')}.png", full_page=True)
        accessible(page)


def test_a_slow_job_shows_its_bottleneck_and_line(visit: Visit) -> None:
    visit.read(visit.page.locator(".bottleneck"), r"Bottleneck: Reviews.*, busy (9\d|100) %")
    visit.click(visit.vertex("Reviews"))
    visit.click(visit.page.get_by_role("button", name="Sample", exact=True))
    sleeps = next(number for number, line in enumerate(LINES, 1) if "time.sleep(" in line)
    visit.read(
        visit.page.locator("section.panel", has_text="Flame graph").locator("p").first,
        rf"your code with the most samples: \S*Reviews\.process_element:{sleeps}, [1-9]",
    )


def test_back_pressured_operators_are_named(visit: Visit) -> None:
    visit.read(visit.vertex("Orders"), r"back-pressured ([1-9]\d|100) %")
    expect(visit.vertex("Orders")).to_have_attribute("data-load", "pressed", timeout=visit.left_ms)
    visit.read(visit.page.locator(".bottleneck"), "Back-pressured: .*Orders")
    assert "Reviews" not in visit.page.locator(".bottleneck").inner_text().partition("Back-pressured")[2]
    visit.click(visit.vertex("Orders"))
    visit.read(visit.page.get_by_role("table", name="Subtasks"), r"\d %\s*HIGH")


def test_the_last_checkpoint_has_an_age_and_a_size(visit: Visit, slow: SlowJob) -> None:
    number = int(visit.read(visit.fact("Last checkpoint"), r"#(\d+), [\d.]+ m?s ago")[1])
    visit.read(visit.fact("State"), r"[\d.]+ KiB")
    visit.click(visit.link("Checkpoints"))
    row = visit.page.get_by_role("region", name="Checkpoints").locator("tbody tr", has_text=f"#{number}")
    visit.read(row.first, "completed")
    size = next(one for one in slow.job.checkpoints.coordinator.history.past() if one.id == number).state_size
    visit.read(row.first, rf"{size / 1024:.{1 if size < 100 * 1024 else 0}f} KiB")


def test_a_failure_shows_the_exception_and_the_line_of_the_user(visit: Visit) -> None:
    visit.click(visit.link("Exceptions"))
    raised = next(number for number, line in enumerate(LINES, 1) if "raise ValueError(" in line)
    visit.read(visit.page.locator(".group-head code").first, rf"slow_job\.py:{raised}$")
    visit.read(visit.page.locator("main p").first, r"raised ValueError: amount \d+ cannot be right")
    visit.read(visit.page.locator("main"), r"built at \S*slow_job\.py:\d+")
    expect(visit.page.locator("pre .user", has_text="cannot be right").first).to_be_visible(timeout=visit.left_ms)


def test_a_failure_shows_the_restarted_tasks(visit: Visit) -> None:
    visit.read(visit.fact("Restarts"), "^1$")
    visit.click(visit.link("Exceptions"))
    visit.read(visit.page.locator("main details").first, r"All tasks of the job restarted.*ran again after [\d.]+ m?s")
    visit.read(visit.page.locator("main details").first, r"attempt \d+ starts with 2 slots from file:\S+/chk-\d+")


def test_a_source_shows_its_unread_input(visit: Visit) -> None:
    visit.read(visit.fact("Unread input"), r"[1-9][\d.,]*k?")
    visit.click(visit.link("Sources and sinks"))
    source = visit.page.locator("section.panel", has=visit.page.get_by_role("heading", name="Orders", exact=True))
    visit.read(source, r"2 splits left, [1-9][\d.,]*k? unread")
    for split in range(2):
        visit.read(source.locator("tbody tr").nth(split).locator("td").nth(4), r"^[1-9][\d.,]*k?$")


def test_a_subtask_has_a_link_to_its_log(visit: Visit, slow: SlowJob) -> None:
    visit.click(visit.vertex("Reviews"))
    visit.click(visit.page.get_by_role("link", name=f"Log of subtask #{slow.hot_subtask}"))
    log = visit.page.get_by_role("log")
    visit.read(log, rf"reviews: Reviews #{slow.hot_subtask}, attempt \d+\].* reviewed \d+ of {slow_job.BIG_CUSTOMER}")
    assert set(re.findall(r"\[reviews: (\w+ #\d+),", log.inner_text())) == {f"Reviews #{slow.hot_subtask}"}


def test_a_skewed_subtask_is_shown(visit: Visit, slow: SlowJob) -> None:
    visit.read(visit.page.locator(".bottleneck"), r"skewed: one subtask gets (1\.[5-9]|2\.\d) times the mean")
    visit.read(visit.vertex("Reviews"), r"skew (1\.[5-9]|2\.\d)\u00d7")
    visit.click(visit.vertex("Reviews"))
    subtasks = visit.page.locator("section.panel", has_text="Subtasks (3)")
    visit.read(subtasks, rf"Records/s in: highest [\d.,k]+ \(subtask #{slow.hot_subtask}\)")
    row = visit.page.get_by_label("Subtasks", exact=True).locator("tbody tr").nth(slow.hot_subtask)
    groups = visit.read(row, r"(\d+)\u2013(\d+)")
    group = key_group(slow_job.BIG_CUSTOMER, slow.job.graph.max_parallelism)
    assert int(groups[1]) <= group <= int(groups[2])


def test_each_operator_shows_the_size_of_its_state(visit: Visit) -> None:
    visit.click(visit.link("State"))
    states = visit.page.get_by_role("region", name="States", exact=True)
    sizes = {}
    for state in ("orders seen", "total"):
        row = states.locator("tbody tr", has_text=state)
        sizes[state] = visit.read(row, r"Reviews.*?([\d.]+ KiB)")[1]
    assert sizes["orders seen"] == sizes["total"], "the size is that of the operator"
    visit.read(states.locator("tbody tr", has_text="Highest"), r"[1-9][\d.]* (KiB|B)")


def test_the_last_rescale_is_shown(visit: Visit) -> None:
    visit.read(visit.fact("Last rescale"), r"2 to 3, [\d.]+ (s|min)( \d+ s)? ago")
    visit.click(visit.link("Timeline"))
    visit.click(visit.page.get_by_role("button", name=re.compile("rescale 2 to 3")))
    visit.read(visit.page.locator("main"), r"Rescale from 2 to 3[\s\S]*Outcome\s*completed")
