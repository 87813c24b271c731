"""Steps that the tests of the dashboard share: the login, a page of the job, screenshots and the accessibility check."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.integration.dashboard.site import Site

ROOT = Path(__file__).parents[3]
SHOTS = ROOT / "build" / "dashboard"
AXE = Path(os.environ.get("PENSTOCK_TEST_AXE", ROOT / "build/axe/node_modules/axe-core/axe.min.js"))


def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def watched(browser: Browser, url: str, scheme: Any, refused: tuple[str, ...] = ("404",)) -> Iterator[Page]:
    """Yield an empty page. A failing script or a request to another site than `url` fails the test."""
    context = browser.new_context(viewport={"width": 1360, "height": 860}, color_scheme=scheme)
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on(
        "console",
        lambda message: (
            wrong.append(message.text)
            if message.type == "error" and not any(status in message.text for status in refused)
            else None
        ),
    )
    made.on(
        "request",
        lambda request: wrong.append(request.url) if not request.url.startswith((url, "data:")) else None,
    )
    yield made
    context.close()
    assert not wrong


def logged_in(
    browser: Browser, site: Site, scheme: Any, token: str, refused: tuple[str, ...] = ("404",)
) -> Iterator[Page]:
    for made in watched(browser, site.url, scheme, refused):
        made.goto(site.url)
        made.get_by_label("Token of the job").fill(token)
        made.get_by_role("button", name="Log in").click()
        expect(made.get_by_role("navigation")).to_contain_text("Job graph")
        yield made


def open_page(page: Page, site: Site, name: str) -> None:
    page.evaluate("name => { location.hash = name }", f"#/jobs/{site.job.job_id}/{name}")
    page.wait_for_timeout(300)


def colours(page: Page) -> str:
    return "dark" if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"


def accessible(page: Page) -> None:
    assert AXE.is_file(), f"{AXE} is missing: npm install --prefix build/axe axe-core@4.14.1"
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    violations = [(v["id"], [node["html"][:200] for node in v["nodes"][:3]]) for v in found["violations"]]
    assert not violations, violations
