"""Values that the dashboard shows, read from the page in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.integration.dashboard.browsing import SHOTS, accessible, colours, open_page, until
from tests.integration.dashboard.site import Site

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_header_and_the_graph_show_the_same_rate(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    rates = """() => [/read\\/s\\s*([\\d,.k]+)/.exec(document.querySelector('#head').innerText),
        /([\\d,.k]+) rec\\/s read/.exec(document.querySelector('.graph').innerText)].map(found => found && found[1])"""
    page.wait_for_function(f"() => !({rates})().includes('0') && !({rates})().includes(null)", timeout=30_000)
    for _ in range(5):
        header, source = page.evaluate(rates)
        assert header == source
        page.wait_for_timeout(700)


def test_a_subtask_shows_its_state_and_the_level_of_its_back_pressure(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    page.locator(".node", has_text="Orders").click()
    first = page.get_by_label("Subtasks", exact=True).locator("tbody tr").first
    expect(first).to_contain_text("running")
    expect(first).to_contain_text(re.compile(r"\d %\s*(OK|LOW|HIGH)"))
    assert "held" not in page.locator("main").inner_text().lower()


def test_a_metric_of_a_function_has_a_plot_and_a_value_for_each_subtask(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    page.locator(".node", has_text="Totals by customer").click()
    page.get_by_label("Search metrics").fill("customer.orders")
    metrics = page.get_by_role("region", name="Metrics", exact=True)
    row = metrics.locator("tbody tr")
    expect(row).to_have_count(1, timeout=10_000)
    page.get_by_role("button", name="Totals_by_customer.orders").click()
    subtasks = page.get_by_role("region", name="Metric by subtask").locator("tbody tr")
    expect(subtasks).to_have_count(site.job.parallelism, timeout=10_000)
    before = row.inner_text()
    expect(row).not_to_have_text(before, timeout=15_000)
    expect(page.get_by_label("Totals_by_customer.orders, since it was selected")).to_be_visible()
    expect(page.locator(".plot", has_text="highest").last).to_contain_text(re.compile(r"highest\s*[\d.,]+k?"))
    page.screenshot(path=SHOTS / f"metric-{colours(page)}.png", full_page=True)
    accessible(page)


def test_a_checkpoint_without_details_shows_what_the_list_has(
    page: Page, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = site.job.checkpoints.coordinator.history
    monkeypatch.setattr(history, "_size", 2)
    oldest = history.past()[0].id
    until(lambda: history.details(oldest) is None)
    open_page(page, site, f"checkpoints/{oldest}")
    detail = page.locator(".panel", has_text=f"Checkpoint {oldest} by vertex")
    expect(detail).to_contain_text("kept only for the newest checkpoints")
    expect(detail).to_contain_text(re.compile(r"Took\s*\d"))
    assert "not in the history" not in page.locator("main").inner_text()


def test_labels_of_axes_are_not_cut(page: Page, site: Site) -> None:
    cut = page.evaluate(
        """async () => {
            const { plot } = await import(new URL('ui/plots.js', document.baseURI).href), { dur, num } = await import(new URL('ui/dom.js', document.baseURI).href);
            const bad = [], write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
                const wide = this.measureText(text).width, from = x - { right: wide, end: wide, center: wide / 2 }[this.textAlign] || x;
                if (text && (from < 0 || from + wide > this.canvas.width)) bad.push([text, from, wide, this.canvas.width]);
                return write.apply(this, arguments);
            };
            const settle = () => new Promise(done => setTimeout(done, 60));
            for (const width of [240, 300, 420, 900]) for (const seconds of [61, 75, 600, 3600])
                for (const [top, format] of [[5_400_000, dur], [100_000, dur], [123_456_789, num], [1e-4, num]]) {
                    const box = document.createElement('div'); box.style.width = `${width}px`; document.body.append(box);
                    const now = Math.floor(Date.now() / 60000) * 60000, times = Array.from({ length: 20 }, (_, i) => now - (19 - i) * seconds * 1000 / 19);
                    const drawn = plot(box, { title: 'x', series: [{ label: 'x', name: 'x', colour: 'in', write: format }] });
                    drawn.show({ times, series: { x: times.map((_, i) => top * i / 19) } });
                    await settle(); drawn.close(); box.remove();
                }
            CanvasRenderingContext2D.prototype.fillText = write;
            return bad;
        }"""
    )
    assert not cut


def test_the_line_of_the_busiest_subtask_is_visible_with_one_subtask(browser: Browser, tmp_path: Path) -> None:
    site = Site(tmp_path, **{"parallelism.default": "1"})  # type: ignore[arg-type]
    try:
        page = browser.new_page(viewport={"width": 1360, "height": 860}, color_scheme="light")
        page.goto(f"{site.url}/#/jobs/{site.job.job_id}/graph")
        page.locator(".node", has_text="Totals by customer").click()
        plot = page.locator(".plot", has_text="busiest")
        expect(plot).to_contain_text(re.compile(r"busiest\s*\d+ %"), timeout=40_000)
        count = """canvas => {
                const probe = document.createElement('canvas').getContext('2d');
                probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--busy').trim(); probe.fillRect(0, 0, 1, 1);
                const want = probe.getImageData(0, 0, 1, 1).data, all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
                let count = 0;
                for (let i = 0; i < all.length; i += 4) if (all[i + 3] > 128 && [0, 1, 2].every(k => Math.abs(all[i + k] - want[k]) < 25)) count++;
                return count;
            }"""
        # A line has at least two points, which are five seconds apart. It grows with each further point.
        until(lambda: plot.locator("canvas").evaluate(count) > 50)
        page.close()
    finally:
        site.close()


def test_a_rescale_can_exceed_the_slots_of_a_cluster_that_starts_more(page: Page, site: Site) -> None:
    open_page(page, site, "graph")
    slider = page.get_by_role("dialog").get_by_label("Parallelism")
    for can_add_slots, most, text in (
        (False, "16", "free slots"),
        (True, str(site.job.graph.max_parallelism), "the cluster starts slots that are missing"),
    ):
        site.job.runner.can_add_slots = can_add_slots
        page.wait_for_timeout(2_500)
        page.get_by_role("button", name="Rescale").click()
        expect(slider).to_have_attribute("max", most)
        expect(page.get_by_role("dialog")).to_contain_text(text)
        page.get_by_role("dialog").get_by_role("button", name="Back").click()
    site.job.runner.can_add_slots = False
