"""A real browser, and a report to look at.

Chromium is looked for where Debian puts it, or at SEARCHR1_CHROMIUM. Without one the browser tests
fail and say so; SEARCHR1_NO_BROWSER=1 skips them, for machines that cannot have one.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

from searchr1.report import build_report
from tests.synthetic_run import ByteTokenizer, make_run

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Visit:
    """An open page, and everything it did that a report must not do."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, report: Path, address: str = "") -> None:
        """Go to a report and wait until it is ready."""
        self.page.goto(f"{report.as_uri()}{address}")
        self.page.wait_for_selector("html[data-ready]", timeout=60_000)

    def check(self, report: Path) -> None:
        """Nothing was fetched but the page itself, and nothing was complained about."""
        assert {request.split("#")[0] for request in self.requests} == {report.as_uri()}
        assert self.complaints == []


def _chromium() -> str:
    if os.environ.get("SEARCHR1_NO_BROWSER") == "1":
        pytest.skip("SEARCHR1_NO_BROWSER=1")
    wanted = os.environ.get("SEARCHR1_CHROMIUM")
    names = [wanted] if wanted else ["chromium", "chromium-browser", "google-chrome"]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.fail(
            "No Chromium for the tests of the report. Install it (Debian: apt-get install "
            "chromium), name it in SEARCHR1_CHROMIUM, or skip them with SEARCHR1_NO_BROWSER=1.",
            pytrace=False,
        )
    return found


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Chromium with a profile of its own."""
    executable = _chromium()
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=executable,
            args=_FLAGS,
            viewport={"width": 1280, "height": 900},
        )
        context.set_default_timeout(30_000)
        yield context
        context.close()


@pytest.fixture
def visit(browser: BrowserContext) -> Iterator[Visit]:
    """A fresh page."""
    page = browser.new_page()
    made = Visit(page)
    page.on("request", lambda request: made.requests.append(request.url))
    page.on("console", lambda message: made.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: made.complaints.append(str(error)))
    page.on("dialog", lambda dialog: made.complaints.append(f"dialog: {dialog.message}"))
    yield made
    page.close()


@pytest.fixture(scope="session")
def screenshots(request: pytest.FixtureRequest) -> Path:
    """Where pictures of the report are kept: .pytest_cache/d/report-screenshots."""
    assert request.config.cache is not None
    return Path(request.config.cache.mkdir("report-screenshots"))


@pytest.fixture(scope="session")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of one run with checkpoints, a watchdog's warning and a report."""
    folder = tmp_path_factory.mktemp("report") / "runs"
    make_run(folder, steps=6, save_every=2, evaluation_questions=35, watchdog_at=4)
    build_report(folder, "demo", tokenizer=ByteTokenizer())
    return folder


@pytest.fixture(scope="session")
def report(runs_dir: Path) -> Path:
    """Its page."""
    return runs_dir / "demo" / "report" / "index.html"
