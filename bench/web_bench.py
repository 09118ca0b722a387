#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The page in a browser: how long after its commit an event is on the screen, and what open pages cost.

A lease is answered when its decision is durable, so an event's delay counts from the answer. Raw is a reader of the
stream that does nothing with it. The costs are shares of a core with 200 live leases at ten events a second: of the
browser with one page, and of the daemon with none and with ten pages. The argument is the number of seconds of each
measurement.
"""
import importlib.util
import os
import pathlib
import shutil
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.support import browser  # noqa: E402
from tests.support.events import Stream  # noqa: E402
from tests.support.sublet import MIB, Daemon  # noqa: E402
from tests.support.web import Web  # noqa: E402

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
WARM = 30  # seconds until the browser has compiled what it runs often
LEASES = 200
PAIRS = 5  # acquire and release each second: ten events
TICKS = os.sysconf("SC_CLK_TCK")

WATCH = """() => {
  window.seen = new Map();
  const look = () => {
    for (const line of document.querySelectorAll('.steps li')) {
      const name = /lease-[0-9]+/.exec(line.textContent);
      if (name && !seen.has(name[0])) seen.set(name[0], performance.timeOrigin + performance.now());
    }
  };
  new MutationObserver(() => requestAnimationFrame(look)).observe(document.body, {subtree: true, childList: true,
    characterData: true});
}"""


def percentile(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def cpu_of(pids):
    """Returns the seconds of processor time of the processes and of all that descend from them."""
    parents, spent = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            rest = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(entry)], spent[int(entry)] = int(rest[1]), (int(rest[11]) + int(rest[12])) / TICKS
    mine = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(seconds for pid, seconds in spent.items() if pid in mine)


def browsers():
    """Returns the pids of the browsers that this process started."""
    return [int(entry) for entry in filter(str.isdigit, os.listdir("/proc"))
            if f"--user-data-dir=/tmp/playwright" in cmdline(entry) and "--type=" not in cmdline(entry)]


def cmdline(entry):
    try:
        return pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def load(api, seconds, tick=lambda: None):
    """Makes ten events a second. Returns the times of the answers by lease."""
    answered, began = {}, time.monotonic()
    for number in range(int(seconds * PAIRS)):
        time.sleep(max(0.0, began + number / PAIRS - time.monotonic()))
        lease = api.post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 600})["id"]
        answered[lease] = time.time() * 1000
        api.post(f"/v1/leases/{lease}/release", {})
        tick()
    return answered


def share(pids, work):
    began, before = time.monotonic(), cpu_of(pids)
    result = work()
    return 100 * (cpu_of(pids) - before) / (time.monotonic() - began), result


class Raw(threading.Thread):
    """Notes when the first event of each lease arrives at a plain reader."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.stream, self.arrived = Stream(daemon), {}
        self.start()

    def run(self):
        while event := self.stream.next():
            self.arrived.setdefault(event.get("lease"), time.time() * 1000)


def delays(seen, answered):
    return [seen[lease] - at for lease, at in answered.items() if lease in seen]


def measure(daemon, api):
    """Returns the delays on the screen and of raw, and the three costs in percent of a core."""
    own = [daemon.process.pid]
    alone, _ = share(own, lambda: load(api, SECONDS))
    with browser.browser() as chromium:
        reader = browser.Reader(chromium, Web(daemon).address)
        reader.goes_live()
        load(api, WARM)
        page, _ = share(browsers(), lambda: load(api, SECONDS))
        reader.page.evaluate(WATCH)  # not before: it costs as much as the page
        raw = Raw(daemon)
        answered = load(api, SECONDS)
        seen = dict(reader.page.evaluate("[...seen]"))
        address, state = reader.page.url.split("#")[0], reader.context.storage_state()
        for _ in range(9):  # contexts of their own: a browser opens six connections to one host
            browser.Reader(chromium, address, storage_state=state).goes_live()
        ten, _ = share(own, lambda: load(api, SECONDS))
    return delays(seen, answered), delays(raw.arrived, answered), page, alone, ten


def main():
    if not shutil.which("chromium") or not importlib.util.find_spec("playwright"):
        print("no chromium or no playwright: apt-get install chromium; tools/thirdparty-venv")
        return 0
    daemon = Daemon("1x24GiB", '[gpu]\ninterval_idle = "1s"\n').start()
    try:
        api = daemon.api()
        for number in range(LEASES):
            api.post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 3600, "consumer": f"job-{number}"})
        screen, raw, page, alone, ten = measure(daemon, api)
    finally:
        daemon.close()
    print(f"web_bench: {LEASES} live leases, {2 * PAIRS} events a second")
    print(f"{'':34} {'p50 ms':>8} {'p95 ms':>8}  ratio to raw")
    for name, values in (("raw: at a plain reader", raw), ("on the screen", screen)):
        ratio = percentile(values, 0.95) / max(percentile(raw, 0.95), 0.1)
        print(f"{name:34} {percentile(values, 0.5):8.1f} {percentile(values, 0.95):8.1f}  {ratio:.1f}")
    print(f"{'':34} {'% of a core':>12}")
    for name, value in (("browser, one page", page), ("daemon, no page", alone), ("daemon, ten pages", ten)):
        print(f"{name:34} {value:12.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
