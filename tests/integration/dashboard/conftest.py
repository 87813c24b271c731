"""A browser, and a site with a job that has failed once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from tests.integration.dashboard.browsing import logged_in, until
from tests.integration.dashboard.site import TOKEN, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "Chromium is missing: apt-get install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return a site whose job has failed once, so that all pages have content."""
    made = Site(tmp_path_factory.mktemp("site"), token=True)
    until(lambda: made.job.checkpoints.coordinator.history.overview()["counts"]["completed"] > 1)
    made.fail_once()
    yield made
    made.close()


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, site: Site, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Yield a page after the login. A failing script or a request to another site fails the test."""
    yield from logged_in(browser, site, request.param, TOKEN)
