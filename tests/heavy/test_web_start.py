# SPDX-License-Identifier: Apache-2.0
"""Programs that are started in the page, and the time line of their leases, in a real browser."""
import re

import pytest

from tests.support.browser import picture, run
from tests.support.sublet import wait_until

pytestmark = pytest.mark.heavy


def start(reader, line, size, name, tier="standard"):
    """Fills the form that starts a program. Returns the dialog."""
    reader.clicks("Start a program")
    dialog = reader.page.get_by_role("dialog")
    for label, value in (("Command line", line), ("Size of the lease", size), ("Name", name)):
        dialog.get_by_label(label).fill(value)
    dialog.get_by_label("Tier").select_option(tier)
    return dialog


def test_the_first_session_is_started_by_clicks(daemons, open_page):
    daemon = daemons()
    reader = open_page(daemon, cwd="/tmp")
    dialog = start(reader, "simgpu-load --alloc 2GiB --seconds 300", "3GiB", "train")
    dialog.get_by_text("The lease would start at once, with 3.0 GiB on gpu0.").wait_for()
    told = dialog.get_by_text(re.compile("^cd .* && sublet run")).inner_text()
    assert told == ("cd /tmp && sublet run --detach --tag train --vram 3GiB "
                    "--command 'simgpu-load --alloc 2GiB --seconds 300'")
    reader.confirms("Start a program")
    reader.sees(re.compile("filled 2.0 GiB on Simulated GPU"))
    assert daemon.get("/v1/programs/train")["directory"] == "/tmp", "as of sublet web"
    dialog = start(reader.opens("Cards"), "simgpu-load --alloc 1GiB --seconds 8", "2GiB", "chat", "interactive")
    dialog.get_by_text("The lease would start with 2.0 GiB on gpu0, once these victims are paused:").wait_for()
    dialog.get_by_role("row").filter(has_text="lease-1").filter(has_text="driver").wait_for()
    picture(reader, "web-start")
    reader.confirms("Start a program")
    reader.opens("Cards").sees_row("lease-1", "train", "paused", "parked for lease-2")
    dialog = start(reader, "simgpu-load --alloc 1GiB --seconds 8", "3GiB", "third")
    dialog.get_by_text(re.compile("^The lease would wait: place 2, 1.3 GiB short on gpu0; start")).wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    reader.sees_row("lease-1", "train", "active")
    assert reader.faults == []


def test_what_is_wrong_with_a_program_is_told_beside_its_field(daemons, open_page):
    daemon = daemons()
    reader = open_page(daemon).opens("Programs")
    dialog = start(reader, "simgpu-load --alloc 64MiB --seconds 300", "a lot", "serve")
    button = dialog.get_by_role("button", name="Start a program")

    def problem(label):
        return dialog.get_by_label(label).locator("xpath=following-sibling::*[@role='alert']")

    problem("Size of the lease").get_by_text("a lot is not a size").wait_for()
    assert button.is_disabled()
    dialog.get_by_label("Size of the lease").fill("30 GiB")
    problem("Size of the lease").get_by_text("no device can ever hold that").wait_for()
    assert button.is_disabled() and dialog.get_by_label("Size of the lease").get_attribute("aria-invalid") == "true"
    dialog.get_by_label("Size of the lease").fill("256 MiB")
    dialog.get_by_label("Ceiling").fill("1MiB")
    problem("Ceiling").get_by_text("below the size").wait_for()
    dialog.get_by_label("Ceiling").fill("")
    dialog.get_by_label("Folder").fill("work")
    problem("Folder").get_by_text("begins with /").wait_for()
    dialog.get_by_label("Folder").fill("")
    dialog.get_by_label("Name").fill("a/b")
    button.click()
    problem("Name").get_by_text("printable characters").wait_for()
    dialog.get_by_label("Name").fill("serve")
    reader.confirms("Start a program")
    reader.sees("running")
    start(reader.opens("Programs"), "simgpu-load", "256MiB", "serve")
    button.click()
    problem("Name").get_by_text("belongs to a program that is running").wait_for()
    assert len(daemon.get("/v1/programs")["programs"]) == 1


def test_the_time_line_shows_the_time_slices(daemons, open_page):
    daemon = daemons('[pause]\nmin_residency = "1s"\nslice_overhead = 1.0\n')
    for name in ("first", "second"):
        run(daemon, name, "3GiB", alloc="256MiB")
        wait_until(lambda: any(lease["tag"] == name for lease in daemon.leases()), "the lease")
    reader = open_page(daemon)
    reader.page.get_by_role("link", name="lease-1", exact=True).first.click()
    line = reader.page.get_by_label("Time line")
    line.get_by_text(re.compile("^paused .*, for the time slice of lease-2 .second")).first.wait_for()
    reader.page.get_by_label("Sums").get_by_text(re.compile("paused for time slices of others")).wait_for()
    reader.page.get_by_text("The time line in words").click()
    reader.page.get_by_role("group").get_by_text(re.compile("^paused .*for the time slice of lease-2")).first.wait_for()
    assert reader.faults == []
