# SPDX-License-Identifier: Apache-2.0
"""A browser opens the page and the picture of a report: nothing fails, and every plot has points."""
import html.parser
import re
import shutil
import subprocess

import pytest

from tests.support.sublet import GIB, Daemon, wait_until

pytestmark = [pytest.mark.heavy,
              pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium: apt-get install chromium")]


class Plots(html.parser.HTMLParser):
    """Counts the elements of class data in each svg of class plot, and notes what a browser would load or run."""

    def __init__(self):
        super().__init__()
        self.points, self.foreign = [], []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        classes = (named.get("class") or "").split()
        if tag == "svg" and "plot" in classes:
            self.points.append(0)
        if "data" in classes:
            self.points[-1] += 1
        if tag in ("script", "iframe", "link", "img", "object") or any(name.startswith("on") for name in named):
            self.foreign.append(tag)


def browse(profile, *arguments):
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
             "--enable-logging=stderr", *map(str, arguments)]
    done = subprocess.run(words, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"CONSOLE|Uncaught|SEVERE", done.stderr), done.stderr
    return done.stdout


@pytest.fixture
def reported(tmp_path):
    """A daemon whose programs held, used and waited for memory."""
    daemon = Daemon("2x4GiB", '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\n')
    try:
        daemon.start()
        api = daemon.api()
        ask = {"ttl_seconds": 600, "device": "gpu0"}
        holder = api.post("/v1/leases", dict(ask, vram_bytes=3 * GIB, consumer='serve <b>&"'))
        waiting = api.post("/v1/leases", dict(ask, vram_bytes=2 * GIB, consumer="train"))
        daemon.cli("run", "--vram", "2GiB", "--name", "embed", "--", "simgpu-load", "--alloc", "1GiB", "--seconds", "2",
                   check=0)
        assert api.post(f"/v1/leases/{holder['id']}/release", {}).status == 200
        wait_until(lambda: api.lease(waiting["id"])["state"] == "offered", "its turn")
        page, picture = tmp_path / "report.html", tmp_path / "report.svg"
        daemon.cli("report", "--by", "consumer", "--html", page, "--svg", picture, check=0)
    finally:
        daemon.close()
    return page, picture


def test_a_browser_shows_the_page(reported, tmp_path):
    page, _ = reported
    plots = Plots()
    plots.feed(browse(tmp_path / "profile", "--dump-dom", page.as_uri()))
    assert len(plots.points) >= 3 and all(plots.points), f"points of each plot: {plots.points}"
    assert plots.foreign == []
    shot = tmp_path / "shot.png"
    browse(tmp_path / "profile", f"--screenshot={shot}", "--window-size=1000,1600", page.as_uri())
    assert shot.read_bytes().startswith(b"\x89PNG") and shot.stat().st_size > 20_000, "it is not a white page"


def test_a_browser_shows_the_picture(reported, tmp_path):
    _, picture = reported
    shown = browse(tmp_path / "profile", "--dump-dom", picture.as_uri())
    assert "parsererror" not in shown and 'class="data' in shown
