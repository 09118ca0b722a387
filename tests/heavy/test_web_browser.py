# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: the first session of README.md watched and steered by clicks, faults, and readers who do
not see or use no mouse. With SUBLET_PICTURES=1 the pictures of docs/web.md are made anew.
"""
import os
import re
import signal
import time

import pytest

from tests.support.browser import Reader, picture, run
from tests.support.events import Stream
from tests.support.sublet import GIB, MIB, wait_until
from tests.support.stacks import Stacks
from tests.support.tcp import free_port
from tests.support.web import Web

pytestmark = pytest.mark.heavy

VIEWS = ("cards", "queue", "ledger", "programs", "stacks", "sessions", "verdicts", "reports")


def test_the_first_session_is_watched_and_steered_by_clicks(daemons, open_page):
    daemon = daemons()
    reader = open_page(daemon).sees("no leases")
    assert not re.search("secret|key", reader.page.url), "the address keeps no secret"
    run(daemon, "train", "3GiB", alloc="2GiB")
    reader.sees_row("lease-1", "train", "active", "3.0 GiB", "2.3 GiB")
    chat = run(daemon, "chat", "2GiB", "--tier", "interactive", seconds=8)
    reader.sees_row("lease-1", "paused", "parked for lease-2")
    reader.sees_row("lease-2", "chat", "active")
    reader.sees("free 1.6 GiB")
    picture(reader, "web-cards")
    reader.page.get_by_role("link", name="lease-1", exact=True).first.click()
    reader.sees(re.compile("parked in host memory by the method driver"))
    reader.sees(re.compile("the memory is held by|Its pause began", re.I))
    assert chat.wait(120) == 0
    reader.sees(re.compile(r"It has held 3\.0 GiB on gpu0 for .*, plus"))
    assert reader.page.get_by_label("Time line").get_by_text(re.compile("^paused ")).count() == 1
    reader.clicks("Pause")
    dialog = reader.page.get_by_role("dialog")
    assert "sublet pause lease-1" in dialog.inner_text()
    reader.confirms("Pause")
    reader.sees(re.compile("parked in host memory by the method driver"))
    assert daemon.leases()[0]["state"] == "paused"
    reader.clicks("Resume").confirms("Resume")
    reader.sees(re.compile("It has held 3.0 GiB"))
    reader.clicks("Stop").confirms("Stop")
    reader.sees(re.compile("It ended .*"))
    assert reader.faults == []


def test_a_newcomer_finds_why_a_lease_waits_and_who_holds_the_card(daemons, open_page):
    daemon = daemons("[pause]\nautomatic = false\n")
    run(daemon, "train", "3GiB", alloc="2GiB")
    wait_until(lambda: daemon.leases() and daemon.leases()[0]["used_bytes"] >= GIB, "the first program has its memory")
    run(daemon, "chat", "2GiB", "--tier", "interactive")
    reader = open_page(daemon)
    reader.sees_row("lease-2", "chat", "queued", "place 1", "short on gpu0")
    reader.opens("Queue").sees_row("lease-2", "lease-1 (train")
    reader.page.get_by_role("link", name="lease-2", exact=True).click()
    reader.sees(re.compile("The memory is held by lease-1 .train"))
    reader.sees("Who holds the memory of gpu0").sees("What would help")
    picture(reader, "web-lease")
    reader.clicks("Preempt")
    dialog = reader.page.get_by_role("dialog")
    dialog.get_by_role("row").filter(has_text="lease-1").filter(has_text="driver").wait_for()
    assert "The memory is free on gpu0 after about" in dialog.inner_text()
    assert "sublet preempt lease-2" in dialog.inner_text()
    assert [lease["state"] for lease in daemon.leases()] == ["active", "queued"], "a preview changes nothing"
    reader.confirms("Preempt")
    reader.sees(re.compile("It has held 2.0 GiB on gpu0"))
    reader.opens("Park ledger").sees_row("lease-1", "train", "parked")
    assert reader.faults == []


def test_programs_are_steered(daemons, open_page):
    daemon = daemons()
    daemon.cli("run", "--detach", "--tag", "serve", "--vram", "2GiB", "--", "simgpu-load", "--alloc", "1GiB",
               "--seconds", "600", check=0)
    reader = open_page(daemon).opens("Programs")
    reader.sees_row("serve", "running", "1.3 GiB")
    reader.page.get_by_role("link", name="serve").click()
    reader.sees(re.compile("filled 1.0 GiB on Simulated GPU"))
    reader.clicks("Update")
    dialog = reader.page.get_by_role("dialog")
    dialog.get_by_label("Ceiling, or none").fill("a lot")
    assert dialog.get_by_role("button", name="Update").is_disabled()
    dialog.get_by_label("Ceiling, or none").fill("3 GiB")
    assert "sublet update serve --memory 3GiB" in dialog.inner_text()
    reader.confirms("Update")
    wait_until(lambda: daemon.get("/v1/programs/serve")["memory_bytes"] == 3 * GIB, "the ceiling holds")
    reader.clicks("Stop").confirms("Stop")
    reader.sees("stopped")
    reader.clicks("Start").confirms("Start")
    reader.sees("running")
    reader.clicks("Remove").confirms("Remove")
    wait_until(lambda: not daemon.get("/v1/programs")["programs"], "the program is forgotten")
    assert reader.faults == []


def test_stacks_are_acquired_and_given_back(daemons, open_page, tmp_path):
    with Stacks(lambda sim, config: daemons(config, sim, quick=""), tmp_path) as place:
        place.write("chat", vram="2GiB")
        place.write("image", vram="3GiB")
        place.start()
        reader = open_page(place.daemon).opens("Stacks")
        reader.sees_row("chat", "down", "2.0 GiB")
        reader.clicks("Acquire stack chat")
        dialog = reader.page.get_by_role("dialog")
        dialog.get_by_label("Time to live, in minutes").fill("90")
        assert "sublet stack acquire chat --wait --ttl 90m" in dialog.inner_text()
        reader.confirms("Acquire")
        reader.sees_row("chat", "ready", "1h")
        reader.clicks("Acquire stack image").confirms("Acquire")
        reader.sees_row("image", "queued", "place 1")
        reader.clicks("Release stack chat").confirms("Release")
        reader.sees_row("image", "ready")
        reader.sees_row("chat", "down")
        reader.clicks("Bring down stack image").confirms("Bring down")
        reader.sees_row("image", "down")
        assert reader.faults == []


def test_processes_without_a_lease_are_approved_or_ended(daemons, open_page):
    daemon = daemons('[enforcer]\ninterval = "1s"\nstart_grace = "3s"\ngrace = "2s"\n')
    stranger = daemon.spawn("simgpu-load", "--alloc", "1GiB", "--seconds", "600")
    reader = open_page(daemon)
    reader.sees(re.compile(f"pid {stranger.pid} of .* 1.3 GiB"))
    reader.opens("Verdicts").sees_row(str(stranger.pid), "simgpu-load", "observe", "seen")
    reader.clicks("Approve")
    dialog = reader.page.get_by_role("dialog")
    dialog.get_by_label("Subject").locator("option", has_text="user:").first.wait_for(state="attached")
    subject = next(option for option in dialog.get_by_label("Subject").locator("option").all_inner_texts()
                   if option.startswith("user:"))
    dialog.get_by_label("Subject").select_option(subject)
    dialog.get_by_label("For hours, or empty for ever").fill("12")
    assert f"sublet approve {subject} --until 12h" in dialog.inner_text()
    reader.confirms("Approve")
    reader.sees("No process holds GPU memory without a lease or an approval.").sees_row(subject)
    for approval in daemon.get("/v1/enforcer")["approvals"]:
        daemon.cli("approve", "--revoke", approval["id"], check=0)
    reader.sees_row(str(stranger.pid), "simgpu-load")
    reader.clicks("End")
    dialog.get_by_label("Subject").select_option(subject)
    dialog.get_by_text(re.compile(f"It would end: pid {stranger.pid}|No process of the subject")).wait_for()
    assert f"sublet enforce set {subject} enforce" in dialog.inner_text()
    reader.confirms("End")
    assert stranger.wait(120) != 0, "the policy ended it"
    assert reader.faults == []


# --- nothing happens ---

def test_nothing_is_asked_for_while_nothing_happens(daemons, open_page):
    daemon = daemons()
    reader = open_page(daemon).sees("no leases")
    stream = Stream(daemon, "?heartbeat=1s&type=daemon")

    def quiet():
        asked = len(reader.requests)
        for _ in range(4):
            stream.sign_of_life()
        reader.page.evaluate("1")
        return reader.requests[asked:] == []
    wait_until(quiet, "a page that has read its tables asks for nothing")
    run(daemon, "train", "2GiB")
    reader.sees_row("train", "active")


# --- faults ---

def test_a_restart_of_the_daemon_is_outlived(daemons, open_page):
    daemon = daemons()
    run(daemon, "train", "2GiB")
    reader = open_page(daemon)
    reader.sees_row("train", "active")
    daemon.kill()
    reader.sees(re.compile("The connection to the daemon is lost"))
    daemon.start()
    reader.goes_live().sees_no(re.compile("The connection to the daemon is lost"))
    reader.sees_row("train", "active")
    assert reader.page.get_by_role("row").filter(has_text="train").count() == 1, "nothing is shown twice"
    run(daemon, "chat", "1GiB", alloc="512MiB")
    reader.sees_row("chat", "active")
    texts = reader.page.get_by_role("heading", name="Latest events").locator("xpath=../ol/li").all_inner_texts()
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("stopped", ["daemon", "sublet web"])
def test_a_process_that_stands_still_is_outlived(daemons, chromium, stopped):
    daemon = daemons()
    web = Web(daemon)
    reader = Reader(chromium, web.address).goes_live()
    pid = daemon.process.pid if stopped == "daemon" else web.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        reader.sees(re.compile("The connection to the daemon is lost"))
    finally:
        os.kill(pid, signal.SIGCONT)
    reader.goes_live().sees_no(re.compile("The connection to the daemon is lost"))
    run(daemon, "train", "2GiB")
    reader.sees_row("train", "active")
    reader.context.close()


def test_a_killed_sublet_web_is_told_and_started_again(daemons, chromium):
    daemon = daemons()
    web = Web(daemon)
    reader = Reader(chromium, web.address).goes_live()
    web.process.kill()
    reader.sees(re.compile("nothing answers at the address of this page"))
    again = Web(daemon, "--port", str(web.port))
    reader.sees(re.compile("has not opened the address that `sublet web` printed"))
    other = Reader(None, again.address, context=reader.context).goes_live()
    reader.goes_live()
    run(daemon, "train", "2GiB")
    for tab in (reader, other):
        tab.sees_row("train", "active")
    reader.context.close()


def test_an_address_that_names_nothing_says_so(daemons, open_page):
    reader = open_page(daemons())
    for name, text in (("constructor", "There is no view constructor"),
                       ("lease/%E0%A4%A", "lease '%E0%A4%A' does not exist"),
                       ("program/__proto__", "there is no program '__proto__'")):
        reader.page.goto(reader.page.url.split("#")[0] + f"#/{name}")
        reader.sees(re.compile(text))
    reader.opens("Cards").sees("no leases")


def test_two_thousand_leases_stay_usable(daemons, open_page):
    daemon = daemons("[limits]\nleases = 4000\n")
    api = daemon.api()
    for number in range(2000):
        assert api.post("/v1/leases", {"vram_bytes": MIB if number < 1500 else 3 * GIB, "ttl_seconds": 3600,
                                       "consumer": f"job-{number}"}).status in (201, 202)
    reader = open_page(daemon)
    box = reader.page.get_by_role("region", name="Leases")
    assert box.get_by_role("table").get_attribute("aria-rowcount") == "2001"
    assert 10 < reader.page.locator("tbody tr[aria-rowindex]").count() < 100, "only the rows that are seen are drawn"
    box.evaluate("box => { box.scrollTop = box.scrollHeight; }")
    reader.sees_row("lease-2000", "job-1999", "queued")
    box.focus()
    reader.page.keyboard.press("Home")
    reader.sees_row("lease-1", "job-0")
    reader.opens("Queue").sees_row("lease-1501", "job-1500")
    assert reader.faults == []


def test_names_stay_text(daemons, open_page):
    daemon = daemons()
    api = daemon.api()
    markup = "<img src=x onerror=alert(1)><b>"
    emoji = "\U0001F469\U0001F3FD" * 8  # 64 bytes
    many = "\U0001F600" * 64
    reversed_text = "שלום <b>"
    for name in (markup, emoji, reversed_text, "'; DROP \"x\" &amp;"):
        ask = {"vram_bytes": MIB, "ttl_seconds": 600, "consumer": name, "tag": name}
        assert api.post("/v1/leases", ask).status == 201, name
    refused = api.post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 600, "consumer": many})
    reader = open_page(daemon)
    for name in (markup, emoji, reversed_text, "'; DROP \"x\" &amp;") + ((many,) if refused.status == 201 else ()):
        reader.sees(name)
    assert reader.page.locator("#page img, #page b").count() == 0
    reader.page.get_by_role("link", name="lease-1", exact=True).first.click()
    reader.page.get_by_role("heading", name=re.compile(re.escape(markup))).wait_for()
    width = reader.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, "a long name makes the page no wider than the window"
    assert reader.faults == []


def test_a_lost_event_is_marked_and_the_tables_are_read_again(daemons, open_page):
    daemon = daemons("[limits]\nevents = 100\n")
    reader = open_page(daemon)
    daemon.api().post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 600, "consumer": "before the gap"})
    reader.sees_row("before the gap", "active")
    # The reader is cut off while more happens than the daemon keeps.
    reader.context.set_offline(True)
    daemon.kill()
    reader.sees(re.compile("The connection to the daemon is lost"))
    daemon.start()
    api = daemon.api()
    for _ in range(300):
        lease = api.post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 600})
        api.post(f"/v1/leases/{lease['id']}/release", {})
    api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "consumer": "after the gap"})
    reader.context.set_offline(False)
    reader.goes_live().sees(re.compile("Events are missing before"))
    reader.sees_row("after the gap", "active")
    reader.clicks("Dismiss").sees_no(re.compile("Events are missing before"))


def test_an_expired_token_asks_for_another(daemons, chromium):
    port = free_port()
    daemon = daemons(f'[api]\ntcp = "127.0.0.1:{port}"\n')
    make = daemon.api().post
    reader = Reader(chromium, f"http://127.0.0.1:{port}/")
    reader.sees("This page needs your rights")
    short = make("/v1/tokens", {"scope": "submit"})
    reader.page.get_by_label("Access token").fill(short["token"])
    reader.clicks("Enter").goes_live()
    assert short["token"] not in reader.page.url
    daemon.cli("token", "revoke", short["id"], check=0)
    reader.sees("This page needs your rights").sees(re.compile("was revoked or has expired|valid access token"))
    reader.page.get_by_label("Access token").fill(make("/v1/tokens", {"scope": "read"})["token"])
    reader.clicks("Enter").goes_live().sees(re.compile("who may only look"))
    reader.context.close()


def test_a_token_to_read_sees_and_has_no_buttons(daemons, chromium):
    port = free_port()
    daemon = daemons(f'[api]\ntcp = "127.0.0.1:{port}"\n')
    run(daemon, "train", "2GiB")
    reader = Reader(chromium, f"http://127.0.0.1:{port}/")
    reader.page.get_by_label("Access token").fill(daemon.api().post("/v1/tokens", {"scope": "read"})["token"])
    reader.clicks("Enter").goes_live()
    reader.sees_row("train", "active")
    reader.page.get_by_role("link", name="lease-1", exact=True).first.click()
    reader.sees(re.compile("It has held 2.0 GiB"))
    assert [button.inner_text() for button in reader.page.get_by_role("button").all()] == ["Copy"]
    reader.opens("Programs").sees("No program is supervised.")
    assert reader.page.get_by_role("button").count() == 0
    reader.context.close()


def test_a_second_tab_works_beside_the_first(daemons, open_page):
    daemon = daemons()
    first = open_page(daemon)
    address = first.page.url.split("#")[0]
    second = Reader(None, address, context=first.context).goes_live()
    run(daemon, "train", "2GiB")
    for reader in (first, second):
        reader.sees_row("train", "active")


def test_a_wrong_clock_of_the_browser_changes_no_age(daemons, open_page):
    daemon = daemons()
    run(daemon, "train", "2GiB")
    wait_until(daemon.leases, "the lease")
    reader = open_page(daemon)
    for wrong in (3600, -3600):
        other = Reader(None, "about:blank", context=reader.context)
        other.page.clock.install(time=time.time() + wrong)
        other.page.goto(reader.page.url.split("#")[0])
        other.goes_live()
        age = other.sees_row("train", "active").get_by_role("cell").nth(7).inner_text()
        assert re.fullmatch(r"\d+s|[0-9]m", age), f"{age} with a clock that is wrong by {wrong} s"


def test_a_hidden_tab_reads_everything_again_when_it_is_seen(daemons, open_page):
    daemon = daemons()
    reader = open_page(daemon)
    hide = """hidden => {
      Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
      document.dispatchEvent(new Event('visibilitychange'));
    }"""
    reader.page.evaluate(hide, True)
    reader.requests.clear()
    run(daemon, "train", "2GiB")
    wait_until(daemon.leases, "the lease")
    stream = Stream(daemon, "?heartbeat=1s&type=daemon")
    stream.sign_of_life()
    reader.page.evaluate("1")
    assert reader.requests == [] and reader.page.get_by_text("train").count() == 0
    reader.page.evaluate(hide, False)
    reader.sees_row("train", "active")


def test_the_words_are_those_of_the_command_line(daemons, open_page):
    daemon = daemons("[pause]\nautomatic = false\n")
    run(daemon, "train", "3GiB", alloc="2GiB")
    wait_until(lambda: daemon.leases() and daemon.leases()[0]["used_bytes"] >= GIB, "the first program has its memory")
    api = daemon.api()
    for size, more in ((2 * GIB, {}), (3 * GIB, {"tier": "batch"}), (256 * MIB, {"priority": -5})):
        api.post("/v1/leases", {"vram_bytes": size, "ttl_seconds": 3600, **more})
    api.post("/v1/leases/lease-3/pause", {})
    daemon.cli("pause", "lease-1", check=0)
    reader = open_page(daemon)

    def without_times(text):
        return re.sub(r"\d+ ?(ms|min|s|m|h)\b", "T", text).replace("T T", "T")

    def told():
        """Returns the reasons of all leases by the command line, without its hints to itself."""
        rows = daemon.json("ps")["leases"]
        lines = daemon.cli("ps", "--no-header", "-o", "reason", check=0).stdout.splitlines()
        return {row["id"]: without_times(line.strip().split(": sublet ")[0]) for row, line in zip(rows, lines)}

    def shown():
        cells = reader.page.get_by_role("region", name="Leases").locator("tbody tr").all()
        return {cell.get_by_role("link").first.inner_text(): without_times(cell.locator(".note").inner_text())
                for cell in cells}

    assert len(told()) == 4 and len(set(told().values())) >= 3, told()
    wait_until(lambda: told() == shown(), f"the same reasons: {told()} and {shown()}")
    sizes = {row["id"]: row["vram_bytes"] for row in daemon.json("ps")["leases"]}
    for line in daemon.cli("ps", "--no-header", "-o", "id,vram,used", check=0).stdout.splitlines():
        name, *words = re.split(r"\s{2,}", line.strip())
        reader.sees_row(name, *words)
    assert len(sizes) == 4


def test_the_browser_is_known_by_its_cookie_and_key_alone(daemons, open_page, chromium):
    daemon = daemons()
    reader = open_page(daemon)
    assert reader.page.evaluate("document.cookie") == ""
    stranger = Reader(chromium, reader.page.url.split("#")[0])
    stranger.sees(re.compile("has not opened the address that `sublet web` printed"))
    assert stranger.page.get_by_label("Access token").count() == 0
    stranger.context.close()


def test_the_page_cannot_be_framed(daemons, open_page, tmp_path):
    daemon = daemons()
    reader = open_page(daemon)
    frame = tmp_path / "frame.html"
    frame.write_text(f'<iframe src="{reader.page.url.split("#")[0]}"></iframe>')
    other = Reader(None, frame.as_uri(), context=reader.context)
    wait_until(lambda: other.page.evaluate("1") and other.faults, "the browser refuses the frame")
    assert any("frame" in fault.lower() for fault in other.faults), other.faults


# --- for all readers ---

@pytest.mark.parametrize("scheme, width", [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 360)])
def test_axe_finds_nothing_serious(daemons, open_page, scheme, width):
    daemon = daemons()
    run(daemon, "train", "3GiB", alloc="2GiB")
    wait_until(lambda: daemon.leases() and daemon.leases()[0]["used_bytes"] >= GIB, "the first program has its memory")
    api = daemon.api()
    api.post("/v1/leases", {"vram_bytes": 2 * GIB, "ttl_seconds": 600, "consumer": "waits"})
    daemon.cli("run", "--detach", "--tag", "serve", "--vram", "256MiB", "--", "simgpu-load", "--alloc", "64MiB",
               "--seconds", "600", check=0)
    reader = open_page(daemon, color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
    for view in (*VIEWS, "lease/lease-1", "lease/lease-2", "program/serve"):
        reader.page.goto(reader.page.url.split("#")[0] + f"#/{view}")
        reader.goes_live()
        reader.page.wait_for_function("!document.querySelector('main').innerText.includes('Reading …')")
        assert reader.serious_findings() == [], view
        over = reader.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{view} is {over} px wider than a window of {width} px"
    reader.page.goto(reader.page.url.split("#")[0] + "#/lease/lease-2")
    reader.clicks("Preempt")
    reader.page.get_by_role("dialog").get_by_text(re.compile("memory is free|cannot be freed", re.I)).first.wait_for()
    assert reader.serious_findings() == [], "the dialog"
    reader.page.keyboard.press("Escape")
    reader.opens("Programs").clicks("Start a program")
    reader.page.get_by_label("Size of the lease").fill("a lot")
    reader.page.get_by_text("a lot is not a size").wait_for()
    assert reader.serious_findings() == [], "the form"


def test_the_keyboard_is_enough(daemons, open_page):
    daemon = daemons()
    run(daemon, "train", "2GiB")
    reader = open_page(daemon)
    reader.sees_row("train", "active")
    keys = reader.page.keyboard
    keys.press("Tab")
    assert reader.page.evaluate("document.activeElement.innerText") == "To the content"
    link = reader.page.get_by_role("link", name="lease-1", exact=True).first
    for _ in range(40):
        if link.evaluate("link => link === document.activeElement"):
            break
        keys.press("Tab")
    keys.press("Enter")
    reader.sees(re.compile("It has held 2.0 GiB"))
    button = reader.page.get_by_role("button", name=re.compile("^Pause"))
    for _ in range(40):
        if button.evaluate("button => button === document.activeElement"):
            break
        keys.press("Tab")
    keys.press("Enter")
    reader.page.get_by_role("dialog").wait_for()
    keys.press("Escape")
    reader.page.get_by_role("dialog").wait_for(state="hidden")
    assert button.evaluate("button => button === document.activeElement"), "the focus is back where it was"


def test_a_report_has_its_plots(daemons, open_page):
    daemon = daemons()
    run(daemon, "train", "2GiB")
    reader = open_page(daemon).opens("Reports")
    reader.page.get_by_label("Period").select_option("1h")
    reader.sees("sublet report --since 1h --by user")
    reader.page.get_by_label("A row for each").select_option("consumer")
    reader.sees("sublet report --since 1h --by consumer")
    reader.sees("Who waited for whom")
    assert reader.faults == []
