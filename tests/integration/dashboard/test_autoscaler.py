"""The page of the autoscaler in a real browser: the wanted parallelism, the measurements, and the reasons of decisions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.integration.dashboard.browsing import SHOTS, accessible, colours, logged_in, open_page, until
from tests.integration.dashboard.site import TOKEN, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SETTINGS = {
    "job.autoscaler.enabled": "true",
    "penstock.autoscaler.mode": "recommend",
    "job.autoscaler.metrics.window": "15 s",
    "job.autoscaler.stabilization.interval": "1 s",
    "job.autoscaler.vertex.min-parallelism": "5",
}


@pytest.fixture(scope="module")
def recommending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return a site whose job runs with 3 subtasks, and whose autoscaler recommends at least 5."""
    made = Site(tmp_path_factory.mktemp("site"), token=True, **SETTINGS)  # type: ignore[arg-type]
    until(lambda: made.job.autoscaler.describe()["reason"] == "OUTSIDE_LIMITS", seconds=120)
    yield made
    made.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_recommendation_is_shown_with_its_measurements_and_the_reasons_of_decisions(
    browser: Browser, recommending: Site, scheme: str
) -> None:
    for page in logged_in(browser, recommending, scheme, TOKEN):
        open_page(page, recommending, "autoscaler")
        main = page.locator("main")
        expect(main).to_contain_text("The autoscaler only recommends a parallelism")
        assert facts(page) == {
            "Parallelism": "3",
            "Recommended": "5",
            "Slots available": "16",
            "Limits": "5 to 128",
            "Reason": "outside limits",
        }
        expect(main).to_contain_text("The parallelism 3 is outside of the limits 5 to 128.")
        vertex = page.get_by_label("Measurements of the newest decision", exact=True).locator("tbody tr").first
        expect(vertex).to_contain_text("Orders")
        expect(vertex).to_contain_text(re.compile(r"\d %"))
        rows = page.get_by_label("Decisions", exact=True).locator("tbody tr")
        expect(rows.first).to_contain_text("outside limits")
        expect(rows.last).to_contain_text("The window of measurements is not complete yet.")
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"autoscaler-recommends-{colours(page)}.png")
        accessible(page)


def facts(page: Page) -> dict[str, str]:
    found = page.locator("main .fact").all()
    return {one.locator("dt").inner_text(): one.locator("dd").inner_text() for one in found}


def test_a_job_without_an_autoscaler_shows_what_it_would_choose(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    page.get_by_role("link", name="Autoscaler").click()
    expect(page.locator("main")).to_contain_text("The autoscaler is off.")
    assert facts(page)["Parallelism"] == str(site.job.parallelism)
