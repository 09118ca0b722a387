# SPDX-License-Identifier: Apache-2.0
"""%sublet in a real kernel, without a browser: one output that is rewritten, interrupts, and pauses between cells."""
import importlib.util
import threading

import pytest

from tests.support.sublet import wait_until


class Kernel:
    """A kernel of the notebook and its client."""

    def __init__(self, manager):
        self.manager, self.client = manager, manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.cell("%load_ext sublet.jupyter")

    def begin(self, text):
        self.outputs = []
        self.sent = self.client.execute(text)

    def end(self):
        """Waits for the end of the cell. Returns its outputs as (kind, text, display id), an error as its name."""
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != self.sent:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return self.outputs
            if kind in ("display_data", "update_display_data", "execute_result"):
                display = content.get("transient", {}).get("display_id")
                self.outputs.append((kind, content["data"]["text/plain"], display))
            elif kind == "error":
                self.outputs.append((kind, content["ename"], None))
            elif kind == "stream":
                self.outputs.append((kind, content["text"], None))

    def wait_for(self, part):
        """Waits until the running cell has written the text."""
        while (message := self.client.get_iopub_msg(timeout=60)):
            if message["msg_type"] == "stream" and part in message["content"]["text"]:
                return

    def cell(self, text):
        self.begin(text)
        return self.end()


@pytest.fixture
def kernel(place, monkeypatch, tmp_path):
    for module, package in (("ipykernel", "python3-ipykernel"), ("jupyter_client", "python3-jupyter-client")):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: apt-get install {package}")
    from jupyter_client.manager import KernelManager
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    manager = KernelManager()
    manager.start_kernel(env=place.env(), cwd=tmp_path)
    made = Kernel(manager)
    yield made
    made.client.stop_channels()
    manager.shutdown_kernel(now=True)
    wait_until(lambda: not place.leases(), "the lease ends with the kernel")


def test_all_cells_are_under_the_lease_of_the_notebook(kernel, place):
    [(kind, text, _)] = kernel.cell("%sublet 1GiB")
    assert kind == "display_data" and text.startswith("lease-1: 1.0 GiB on gpu0")
    assert kernel.cell("import sublet; sublet.current().id")[0][1] == "'lease-1'"
    assert kernel.cell("with sublet.lease('1GiB') as inner: print(inner.nested)")[0][1] == "True\n"
    assert kernel.cell("await __import__('asyncio').sleep(0); sublet.current().id")[-1][1] == "'lease-1'"
    assert kernel.cell("%%sublet 512MiB\nprint(sublet.current().nested)")[-1][1] == "True\n"
    assert kernel.cell("%%sublet 512MiB\n1/0")[-1][1] == "ZeroDivisionError"


def other_lease(place):
    """Takes most of the card by a token: a lease of this process would be the kernel's own."""
    return place.daemon.api().post("/v1/leases", {"vram_bytes": 3 << 30, "ttl_seconds": 600})["id"]


def test_one_output_is_rewritten_while_a_cell_waits(kernel, place):
    held = other_lease(place)
    kernel.begin("%sublet 2GiB")
    wait_until(lambda: place.leases("queued"), "the cell waits")
    place.daemon.api().post(f"/v1/leases/{held}/release", {})
    outputs = kernel.end()
    assert [kind for kind, _, _ in outputs] == ["display_data"] + ["update_display_data"] * (len(outputs) - 1)
    assert len({display for _, _, display in outputs}) == 1 and outputs[-1][1].endswith("active")


def test_the_interrupt_withdraws_the_request(kernel, place):
    held = other_lease(place)
    kernel.begin("%sublet 2GiB")
    wait_until(lambda: place.leases("queued"), "the cell waits")
    kernel.manager.interrupt_kernel()
    assert kernel.end()[-1][1] == "KeyboardInterrupt"
    assert [lease["id"] for lease in place.leases()] == [held]
    place.daemon.api().post(f"/v1/leases/{held}/release", {})


def test_the_notebook_steps_aside_between_cells(kernel, place):
    kernel.cell("class Aside:\n    calls = []\n    def on_pause(self, order): self.calls.append('pause')\n"
                "    def on_resume(self): self.calls.append('resume')\naside = Aside()")
    kernel.cell("%sublet 3GiB --tier batch --tag mine --pause aside --pausable cooperative")
    place.daemon.cli("pause", "mine", check=0)
    assert "paused: " in kernel.cell("%sublet")[0][1], "a cell of %sublet lines does not wait"
    kernel.begin("aside.calls")
    resume = threading.Thread(target=lambda: place.daemon.cli("resume", "mine", check=0))
    resume.start()
    assert kernel.end()[-1][1] == "['pause', 'resume']"
    resume.join()
    place.daemon.cli("pause", "mine", check=0)
    kernel.begin("aside.calls")
    kernel.wait_for("is paused")
    kernel.manager.interrupt_kernel()
    assert kernel.end()[-1][0] == "error" and place.leases("paused"), "an interrupted cell does not run"
