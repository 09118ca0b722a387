# SPDX-License-Identifier: Apache-2.0
"""Chromium, driven by Playwright, and what a reader does with the page. tools/thirdparty-venv installs Playwright and
the rules of axe, and apt-get the browser.
"""
import contextlib
import os
import pathlib
import re
import shutil
import sys

import pytest

from .sublet import ROOT

for _site in (ROOT / ".venv-thirdparty").glob("lib/python3*/site-packages"):
    sys.path.append(str(_site))

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--no-first-run"]
SERIOUS = ("serious", "critical")


def need():
    """Skips the test if the browser or what drives it is not installed."""
    if not shutil.which("chromium"):
        pytest.skip("chromium is not installed: apt-get install chromium")
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: tools/thirdparty-venv installs it")


@contextlib.contextmanager
def browser():
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        try:
            yield chromium
        finally:
            chromium.close()


class Reader:
    """A tab. Notes each message of the browser about a fault, and each request."""

    def __init__(self, chromium, address, context=None, **options):
        self.context = context or chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.faults, self.requests = [], []
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(f"{request.method} {request.url}"))
        self.page.set_default_timeout(60_000)
        self.page.goto(address)

    def goes_live(self):
        self.sees("live")
        return self

    def sees(self, text):
        """Waits until the text is seen. A pattern may be given."""
        self.page.get_by_text(text).first.wait_for()
        return self

    def sees_no(self, text):
        self.page.get_by_text(text).first.wait_for(state="hidden")
        return self

    def row(self, text):
        return self.page.get_by_role("row").filter(has_text=text).first

    def sees_row(self, name, *words):
        """Waits until a row with this name has all these words."""
        row = self.page.get_by_role("row").filter(has_text=name)
        for word in words:
            row = row.filter(has_text=word)
        row.first.wait_for()
        return row.first

    def opens(self, view):
        self.page.get_by_role("navigation").get_by_role("link", name=view).click()
        self.page.get_by_role("heading", name=re.compile(view, re.I)).first.wait_for(state="attached")
        return self

    def clicks(self, name):
        """Clicks the button of this name, or of an act with this name on an object: "Pause lease-1"."""
        self.page.get_by_role("button", name=re.compile(rf"^{name}\b")).first.click()
        return self

    def confirms(self, name):
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("button", name=name, exact=True).click()
        dialog.wait_for(state="hidden")
        return self

    def serious_findings(self):
        """Returns the findings of axe that would keep somebody from using the page."""
        import axe_playwright_python
        rules = next(pathlib.Path(axe_playwright_python.__file__).parent.glob("axe*.js")).read_text()
        # As the tools of a developer do: the policy of the page lets no foreign script in.
        self.page.evaluate(rules)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [f"{one['id']}: {one['help']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
                for one in found["violations"] if one["impact"] in SERIOUS for node in one["nodes"][:5]]


PICTURES = ROOT / "docs/pictures" if os.environ.get("SUBLET_PICTURES") else None


def picture(reader, name):
    if PICTURES:
        reader.page.screenshot(path=PICTURES / f"{name}.png")


def run(daemon, tag, size, *flags, alloc="1GiB", seconds=300):
    """Starts a program in the foreground, as the session of README.md does."""
    return daemon.spawn("sublet", "run", "--vram", size, "--tag", tag, "--name", tag, *flags, "--", "simgpu-load",
                        "--alloc", alloc, "--seconds", str(seconds))
