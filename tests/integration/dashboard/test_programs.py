"""The page of a session cluster that uploads and starts programs, in a real browser on a real session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.integration.dashboard.browsing import SHOTS, accessible, colours, watched
from tests.session_process import SessionProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = """
import sys
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(range(int(sys.argv[1]))).map(lambda n: n * 2).print()
env.execute("doubled")
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionProcess]:
    started = SessionProcess(tmp_path_factory.mktemp("session"))
    started.start()
    yield started
    started.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_program_is_uploaded_and_started(
    browser: Browser, session: SessionProcess, tmp_path: Path, scheme: str
) -> None:
    script = tmp_path / "double.py"
    script.write_text(PROGRAM)
    for page in watched(browser, session.url, scheme, refused=("400", "404")):
        page.goto(session.url)
        page.get_by_label("Token of the job").fill(session.token)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="Submit a program").click()
        page.get_by_label("A module (.py), an archive or a wheel").set_input_files(script)
        page.get_by_role("button", name="Upload", exact=True).click()
        expect(page.get_by_role("heading", name="Start double.py")).to_be_visible()
        page.get_by_role("button", name="Start the program").click()
        expect(page.get_by_role("alert")).to_contain_text("IndexError", timeout=60_000)  # no argument
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"programs-{colours(page)}.png", full_page=True)
        accessible(page)
        page.get_by_label("Arguments").fill("5")
        page.get_by_role("button", name="Start the program").click()
        expect(page.locator("#head")).to_contain_text("doubled", timeout=60_000)
        expect(page.locator("#head")).to_contain_text("finished", timeout=60_000)
        session.wait_until(lambda: not session.processes(), "the end of the program's process")
        page.get_by_role("link", name="Submit a program").click()
        page.get_by_role("button", name="Delete").first.click()
        expect(page.get_by_text("No program has been uploaded yet.")).to_be_visible()
