"""Every page of the dashboard in a real browser, with a job that fails, is rescaled and ends during the tests.

Screenshots go to `build/dashboard`. The tests need Chromium (Debian's package `chromium`). The accessibility check needs axe-core
(`npm install --prefix build/axe axe-core@4.14.1`). An error names a missing program.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

from penstock.common.errors import NotNow
from penstock.jobmanager.history.archive import Archives
from penstock.jobmanager.history.gateway import ArchiveGateway
from penstock.rest.server import RestServer
from tests.integration.dashboard.browsing import SHOTS, accessible, colours, logged_in, open_page, until
from tests.integration.dashboard.site import READER, SECRET, TOKEN, Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = [
    "graph",
    "timeline",
    "checkpoints",
    "exceptions",
    "connectors",
    "autoscaler",
    "state/totals/total",
    "configuration",
]
PAINT_MS = 300
"""Limit in ms until the first paint, on loopback and an idle machine. `SLOWER` raises it for a busy machine."""
SLOWER = float(os.environ.get("PENSTOCK_TEST_SLOWER", "5"))

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize("name", PAGES)
def test_every_page_shows_the_job_and_is_accessible(page: Page, site: Site, name: str) -> None:
    open_page(page, site, name)
    expect(page.locator("#head")).to_contain_text("orders")
    page.wait_for_timeout(1_500)
    expect(page.locator("main .error")).to_have_count(0)
    assert SECRET not in page.content()
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name.partition('/')[0]}-{colours(page)}.png")
    accessible(page)


def test_the_graph_is_live_and_a_vertex_links_to_its_subtasks(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    expect(page.locator(".node")).to_have_count(4)
    expect(page.locator(".edge").first).to_contain_text("by key")
    before = page.locator("#head .fact").first.inner_text()
    page.locator(".node", has_text="Totals by customer").click()
    expect(page.get_by_label("Subtasks", exact=True).locator("tbody tr")).to_have_count(site.job.parallelism)
    expect(page.get_by_label("States", exact=True).first).to_contain_text("by amount")
    expect(page.locator(".plot canvas").first).to_be_visible(timeout=30_000)
    page.wait_for_timeout(2_000)
    assert page.locator("#head .fact").first.inner_text() != before
    page.screenshot(path=SHOTS / f"vertex-{colours(page)}.png", full_page=True)
    accessible(page)


def test_a_flame_graph_has_the_users_line_and_a_bar_fills_the_width(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    page.locator(".node", has_text="Totals by customer").click()
    page.get_by_role("button", name="Sample", exact=True).click()
    graph = page.get_by_label("Flame graph", exact=True).last
    mine = graph.locator("[data-whose=user]", has_text="process_element").first
    expect(mine).to_be_visible(timeout=30_000)
    page.screenshot(path=SHOTS / f"flame-{colours(page)}.png", full_page=True)
    mine.click()
    expect(page.locator(".flame + p")).to_contain_text("process_element")
    accessible(page)


def test_the_last_records_on_an_edge_are_shown_on_request(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    page.locator(".node", has_text="Totals by customer").click()
    edges = page.get_by_label("Edge", exact=True)
    edges.select_option(label="Only real ones → Totals by customer")
    page.get_by_role("button", name="Show", exact=True).click()
    rows = page.get_by_label("Last records on Only real ones → Totals by customer", exact=True).locator("tbody tr")
    expect(rows).to_have_count(20, timeout=30_000)
    cells = rows.last.locator("td").all_inner_texts()
    assert re.fullmatch(r"#\d", cells[1])
    assert re.fullmatch(r"20\d\d-.*Z", cells[2])
    assert re.fullmatch(r"'customer-\d+'", cells[3])
    assert re.fullmatch(r"\('customer-\d+', \d+, \d{13}\)", cells[4])
    page.screenshot(path=SHOTS / f"records-{colours(page)}.png", full_page=True)
    accessible(page)
    edges.select_option(label="Totals by customer → Round totals")
    page.get_by_role("button", name="Show", exact=True).click()
    chained = page.get_by_label("Last records on Totals by customer → Round totals", exact=True).locator("tbody tr")
    expect(chained).to_have_count(20, timeout=30_000)


def test_the_stacks_of_a_taskmanager_are_shown_on_request(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/#/taskmanagers/{site.session.cluster.task_managers()[0].id}")
    page.get_by_role("button", name="Show the stacks").click()
    expect(page.get_by_text("MainThread").first).to_be_visible()


def test_the_bar_of_a_vertex_is_as_long_as_its_busy_share(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    shares = """() => [...document.querySelectorAll('.node')].map(node => [
        Number(/busy (\\d+) %/.exec(node.textContent)[1]),
        100 * node.querySelector('.share .b').getBoundingClientRect().width / node.querySelector('.share').getBoundingClientRect().width,
    ])"""
    page.wait_for_function(f"() => ({shares})().some(([said]) => said > 0)", timeout=30_000)
    page.wait_for_timeout(500)  # the bar moves for 300 ms
    for shown, drawn in page.evaluate(shares):
        assert abs(shown - drawn) <= 25, (shown, drawn)  # the text shows the busiest subtask, and the bar the mean
        assert not shown or drawn > 0


def test_a_page_of_the_cluster_shows_its_facts_and_keeps_the_navigation_of_the_job(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    expect(page.locator("#nav")).to_contain_text("Checkpoints")
    page.locator("#nav a", has_text="TaskManagers").click()
    page.locator("main table a").first.click()
    expect(page.locator("main dl.kv")).to_contain_text("in use")
    assert "[object" not in page.locator("main").inner_text()
    page.screenshot(path=SHOTS / f"taskmanager-{colours(page)}.png")
    page.locator("#nav a", has_text="Checkpoints").click()
    expect(page.locator("#head")).to_contain_text("orders")


def test_the_timeline_shows_the_failure_and_links_to_it(page: Page, site: Site) -> None:
    open_page(page, site, "timeline")
    page.locator(".it.fail").last.click()
    expect(page.locator("main")).to_contain_text("cannot be right")
    page.locator(".it.s-RESTARTING").last.focus()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("Cause")


def test_state_is_found_by_key(page: Page, site: Site) -> None:
    open_page(page, site, "state/totals/total")
    page.get_by_label("Key", exact=True).fill("customer-1")
    page.get_by_role("button", name="Look up").click()
    entries = page.get_by_label("Entries of total", exact=True).locator("tbody tr")
    expect(entries).to_have_count(1)
    expect(entries.first).to_contain_text("customer-1")


def test_live_state_is_shown_for_a_key(page: Page, site: Site) -> None:
    open_page(page, site, "state/totals/total")
    about, now = page.locator(".about"), page.get_by_role("button", name="Current value")
    expect(about).to_contain_text("As of checkpoint")
    places = [page.locator(of).bounding_box() for of in ("#key", ".seg", ".entries")]
    now.focus()
    page.keyboard.press("Enter")
    expect(now).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".entries")).to_contain_text("Enter a key")
    expect(page.get_by_role("button", name="Scan")).to_be_disabled()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.type("customer-1")
    page.keyboard.press("Enter")
    entries = page.get_by_label("Entries of total", exact=True).locator("tbody tr")
    expect(entries).to_have_text(["customer-17"])  # the key, and 7
    expect(about).to_contain_text(f"in the task that has the key, attempt {site.job.attempt}")
    assert [(box["x"], box["y"]) for box in places if box] == [
        (box["x"], box["y"]) for of in ("#key", ".seg", ".entries") if (box := page.locator(of).bounding_box())
    ]
    page.screenshot(path=SHOTS / f"state-live-{colours(page)}.png")
    accessible(page)
    page.get_by_label("Key", exact=True).fill("nobody")
    page.keyboard.press("Enter")
    expect(page.locator(".entries")).to_contain_text("The key has no entries")
    page.get_by_role("button", name="As of the newest checkpoint").click()
    expect(about).to_contain_text("As of checkpoint")


def test_refusals_of_tasks_are_shown_in_place(browser: Browser, site: Site) -> None:
    late = NotNow("the task has not answered within 2 s", remedy="ask again, or with consistency=checkpoint")
    for page in logged_in(browser, site, "light", TOKEN, refused=("400", "404", "503")):
        open_page(page, site, "state/totals/total")
        page.get_by_role("button", name="Current value").click()
        key, error = page.get_by_label("Key", exact=True), page.locator(".entries .error")
        key.fill("nobody")
        site.tasks.sample = 7
        page.keyboard.press("Enter")
        expect(error).to_contain_text("keys of state 'total' have another type")
        key.fill("customer-1")
        try:
            site.tasks.refusal = late
            page.keyboard.press("Enter")
            expect(error).to_contain_text("has not answered within 2 s")
            expect(error).to_contain_text("ask again, or as of the newest checkpoint")
            expect(page.locator(".about")).to_contain_text("No response at")
            page.screenshot(path=SHOTS / "state-refused.png")
            accessible(page)
        finally:
            site.tasks.refusal = None
        page.keyboard.press("Enter")
        expect(error).to_have_count(0)
        expect(page.locator(".about")).to_contain_text("Value at")


def test_a_state_without_a_queryable_name_shows_how_to_set_one(page: Page, site: Site) -> None:
    open_page(page, site, "state/totals/by amount")
    expect(page.get_by_text('set_queryable("a name")')).to_be_visible()
    expect(page.get_by_role("button", name="Current value")).to_have_count(0)
    accessible(page)


def test_the_log_shows_places_and_no_secret(page: Page, site: Site) -> None:
    page.evaluate("location.hash = '#/jobmanager'")
    expect(page.locator("pre.log")).to_contain_text("[orders: Totals by customer #")
    assert SECRET not in page.locator("pre.log").inner_text()
    page.screenshot(path=SHOTS / f"log-{colours(page)}.png")
    accessible(page)


def test_the_dashboard_is_readable_at_double_size_and_usable_by_keyboard(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": 680, "height": 430})
    for name in PAGES:
        open_page(page, site, name)
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), (
            f"{name} is wider than the window"
        )
    page.set_viewport_size({"width": 1360, "height": 860})
    page.locator("main").focus()
    page.keyboard.press("t")
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()


def test_a_rescale_is_explained_and_followed_to_its_end(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    to = 2 if site.job.parallelism == 4 else 4
    page.get_by_role("button", name="Rescale").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("No record is lost or processed twice")
    slider = dialog.get_by_label("Parallelism")
    slider.fill(str(to))
    expect(dialog).to_contain_text(f"to {to}:")
    page.screenshot(path=SHOTS / f"rescale-{colours(page)}.png")
    accessible(page)
    dialog.get_by_role("button", name="Rescale").click()
    expect(dialog).to_contain_text("Done in", timeout=30_000)
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("#head")).to_contain_text(f"{to} of", timeout=10_000)
    assert site.job.parallelism == to


def test_a_savepoint_that_fails_does_not_change_the_job(page: Page, site: Site) -> None:
    page.get_by_role("button", name="Savepoint").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Folder").fill("nowhere://x")
    dialog.get_by_role("button", name="Take savepoint").click()
    expect(dialog.locator(".error")).to_be_visible(timeout=30_000)
    assert not site.job.is_done


def test_readers_have_no_actions(browser: Browser, site: Site) -> None:
    for page in logged_in(browser, site, "light", READER):
        open_page(page, site, "graph")
        expect(page.locator("#head")).to_contain_text("orders")
        expect(page.get_by_role("button", name="Cancel")).to_be_hidden()


def test_a_wrong_token_is_reported(browser: Browser, site: Site) -> None:
    page = browser.new_page()
    page.goto(site.url)
    page.get_by_label("Token of the job").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("main")).to_contain_text("is not valid for this cluster")
    page.screenshot(path=SHOTS / "login.png")
    accessible(page)
    page.close()


def test_the_first_paint_is_fast(page: Page, site: Site) -> None:
    page.reload()
    expect(page.locator("#head")).to_contain_text("orders")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert paint <= PAINT_MS * SLOWER


def test_thousands_of_subtasks_do_not_slow_the_dashboard_down(browser: Browser, tmp_path: Path) -> None:
    site = Site(
        tmp_path,
        slots=700,
        **{"parallelism.default": "500", "pipeline.max-parallelism": "512"},  # type: ignore[arg-type]
    )  # four vertices: 2,000 subtasks
    try:
        until(lambda: site.job.history.status.value == "RUNNING")
        vertex = httpx.get(f"{site.url}/jobs/{site.job.job_id}/plan").json()["plan"]["nodes"][1]["id"]
        page = browser.new_page()
        page.goto(f"{site.url}/#/jobs/{site.job.job_id}/graph/{vertex}")
        expect(page.get_by_role("region", name="Subtasks", exact=True)).to_contain_text(
            "Show more of 500", timeout=30_000
        )
        drawn = page.evaluate(
            "() => new Promise(done => { let n = 0; const t = performance.now(); const f = () => ++n < 30 ? requestAnimationFrame(f)"
            " : done((performance.now() - t) / 30); requestAnimationFrame(f) })"
        )
        assert drawn < 50 * SLOWER, "milliseconds for a frame"
        page.screenshot(path=SHOTS / "many.png")
        page.close()
    finally:
        site.close()


def test_the_end_of_the_job_is_shown(browser: Browser, tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        page = browser.new_page()
        page.goto(site.url)
        page.get_by_role("button", name="Cancel").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("without a savepoint")
        page.screenshot(path=SHOTS / "cancel.png")
        dialog.get_by_role("button", name="Cancel the job").click()
        expect(page.locator("#head .badge")).to_have_text("canceled", timeout=30_000)
        page.close()
    finally:
        site.close()


def test_an_ended_job_is_shown_from_its_archive(browser: Browser, tmp_path: Path) -> None:
    history = tmp_path / "history"
    site = Site(tmp_path, **{"jobmanager.archive.fs.dir": str(history)})  # type: ignore[arg-type]
    try:
        until(lambda: site.job.checkpoints.coordinator.history.overview()["counts"]["completed"] > 1)
        site.fail_once()
        job = site.job.job_id
    finally:
        site.close()
    server = RestServer(ArchiveGateway(Archives(str(history))), port=0).start()
    try:
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        for name, text in {
            "graph": "Totals by customer",
            "timeline": "orders",
            "checkpoints": "completed",
            "exceptions": "cannot be right",
            "configuration": "jobmanager.archive.fs.dir",
        }.items():
            page.goto(f"{server.url}/#/jobs/{job}/{name}")
            expect(page.locator("#head .badge")).to_have_text("canceled")
            expect(page.locator("body")).to_contain_text(text, ignore_case=True)
            page.wait_for_timeout(1_000)
            page.screenshot(path=SHOTS / f"history-{name}.png")
        page.close()
        assert not wrong
    finally:
        server.stop()
