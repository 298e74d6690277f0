"""A real Chromium that looks at pages, and notes what a page must not do."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.missing import missing

#: Debian's.
CHROMIUM = "/usr/bin/chromium"
#: Longest wait for something on a page, in ms.
WAIT_MS = 30_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Runs the browser. Without it the test fails in CI, and is skipped elsewhere."""
    found = CHROMIUM if os.path.exists(CHROMIUM) else shutil.which("chromium")
    if found is None:
        missing("there is no chromium: install Debian's package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A reader with a browser window.

    Args:
        browser: The browser.
        url: Address of the overview, with a slash at its end.
        expected: Beginnings of what the console may say, such as of an error that a test provokes.
        how: Of the window, such as ``color_scheme`` or ``java_script_enabled``.

    Attributes:
        page: The page that the window shows.
        faults: What pages did that they must not do.
    """

    def __init__(self, browser: Browser, url: str, *, expected: tuple[str, ...] = (), **how: Any) -> None:
        self.url = url
        self.faults: list[str] = []
        self._expected = expected
        how = {"viewport": {"width": 1440, "height": 900}, "timezone_id": "UTC", "reduced_motion": "reduce"} | how
        self._context = browser.new_context(**how)
        self._context.set_default_timeout(WAIT_MS)
        self.page: Page = self._context.new_page()
        self.page.on("console", lambda said: self._note(said.type, said.text))
        self.page.on("pageerror", lambda error: self._note("error", str(error)))
        self.page.on("request", lambda request: self._look_at(request.url))

    def see(self, path: str = "") -> Page:
        """Opens a path below the overview."""
        self.page.goto(self.url + path)
        return self.page

    def check_access(self) -> None:
        """Looks with axe-core for what keeps people from using the page."""
        found = Axe().run(self.page).response["violations"]
        assert not found, [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found]
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{self.page.url} is {wide} px wider than its window"

    def close(self) -> None:
        """Closes the window. The test fails if pages did what they must not do."""
        self._context.close()
        assert not self.faults, self.faults

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not text.startswith(self._expected or ("\0",)):
            self.faults.append(text)

    def _look_at(self, url: str) -> None:
        if urlsplit(url).netloc != urlsplit(self.url).netloc and not url.startswith(("data:", "blob:")):
            self.faults.append(f"a request to another host: {url}")
