# SPDX-License-Identifier: Apache-2.0
"""%sublet and %%sublet in IPython without a browser. Each cell runs in a context of its own, as in a kernel."""
import contextvars
import os
import re
import signal
import threading
import types

import pytest

import sublet
from tests.support.sublet import GIB, wait_until


class Shell:
    """An IPython that runs cells."""

    def __init__(self, ipython):
        self.ipython = ipython
        self.cell("%load_ext sublet.jupyter")

    def try_cell(self, text):
        return contextvars.copy_context().run(self.ipython.run_cell, text)

    def cell(self, text):
        result = self.try_cell(text)
        result.raise_error()
        return result.result

    def error(self, text):
        """Returns the exception of a cell that fails."""
        result = self.try_cell(text)
        return result.error_before_exec or result.error_in_exec


@pytest.fixture
def shell(place, tmp_path, monkeypatch):
    pytest.importorskip("IPython", reason="IPython is not installed: apt-get install python3-ipython")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config
    ipython = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    made = Shell(ipython)
    yield made
    InteractiveShell.clear_instance()
    made.cell("%unload_ext sublet.jupyter")
    assert "sublet" not in ipython.magics_manager.magics["line"] and ipython.ast_transformers == []
    assert sublet.current() is None
    wait_until(lambda: not place.leases(), "a lease that was paused ends, too")


def test_the_lease_of_a_notebook(shell, place, capsys):
    shell.cell("%sublet")
    assert "holds no lease" in capsys.readouterr().out
    shell.cell("%sublet 1GiB --tier batch --tag mine")
    [lease] = place.leases("active")
    assert lease["tier"] == "batch" and lease["tag"] == "mine" and lease["owner"]["pid"] == os.getpid()
    out = capsys.readouterr().out
    assert out.startswith(f"{lease['id']}: 1.0 GiB on gpu0 (") and out.endswith("tier batch, active\n"), out
    shell.cell("%sublet")
    assert capsys.readouterr().out == out
    shell.cell("%sublet 2GiB")
    assert [lease["vram_bytes"] for lease in place.leases()] == [2 * GIB] and "2.0 GiB" in capsys.readouterr().out
    assert shell.cell("import sublet; sublet.current().id") == lease["id"], "the other cells are under the lease"
    with_inner = "with sublet.lease('1GiB') as inner: nested = inner.nested\nnested"
    assert shell.cell(with_inner) is True
    assert os.environ["SUBLET_LEASE"] == lease["id"]
    shell.cell("%sublet release")
    assert place.leases() == [] and shell.cell("sublet.current()") is None
    shell.cell("%sublet release")


def test_a_lease_for_one_cell(shell, place, capsys):
    assert shell.cell("%%sublet 1GiB\nimport sublet\nvalue = sublet.current().id\nvalue") is None
    assert shell.ipython.user_ns["value"].startswith("lease-") and place.leases() == []
    assert shell.ipython.user_ns["value"] in capsys.readouterr().out, "the last value is shown"
    shell.cell("%sublet 2GiB")
    shell.cell("%%sublet 1GiB\nnested = sublet.current().nested")
    assert shell.ipython.user_ns["nested"] is True and len(place.leases()) == 1
    assert isinstance(shell.error("%%sublet 3GiB\npass"), sublet.TooLarge)
    assert len(place.leases()) == 1


def test_an_error_of_the_cell_leaves_it_once(shell, place, capsys):
    assert isinstance(shell.error("%%sublet 1GiB\n1/0"), ZeroDivisionError)
    assert capsys.readouterr().out.count(": division by zero") == 1 and place.leases() == []
    assert isinstance(shell.error("%%sublet 1GiB\nif"), SyntaxError) and place.leases() == []


@pytest.mark.parametrize("line, part", [
    ("%sublet 1GiB --frob", "--frob"), ("%sublet --tier batch", "needs a size"), ("%sublet 'a", "No closing quotation"),
    ("%%sublet\npass", "needs a size"), ("%%sublet 1GiB --pause it\npass", "no --pause"),
    ("%sublet 1GiB --pause nothing", "no object of this name"),
    ("%sublet --min-vram 1GiB", "--min-vram needs a size"), ("%sublet 1GiB --residue 1MiB", "--residue needs --pause"),
    ("%sublet 1GiB --no-wait --timeout 3", "exclude each other")])
def test_a_wrong_line_is_refused_with_the_usage(shell, place, line, part):
    error = shell.error(line)
    assert type(error).__name__ == "UsageError" and part in str(error)
    assert place.leases() == []


def test_an_error_of_the_magic_is_one_line(shell, place, capsys):
    """Not the traceback of the package, and with a hint in the words of the notebook."""
    lines = []
    for text in ("%sublet 1TiB", "%%sublet 1TiB\npass", "%sublet 8Frob"):
        assert isinstance(shell.error(text), sublet.SubletError)
        lines.append(capsys.readouterr().out.strip())
    assert lines[0].startswith("TooLarge: the lease needs 1.0 TiB") and lines[0].endswith("or less"), lines
    assert lines[1] == lines[0] and lines[2].startswith("BadRequest: the size '8Frob'")
    assert not any("\n" in line for line in lines)
    with sublet.lease("3GiB") as other:
        contextvars.Context().run(shell.ipython.run_cell, "%sublet 2GiB --no-wait")
        assert other.held
    line = capsys.readouterr().out.strip()
    assert line.startswith("Memory: ") and line.endswith("; leave out --no-wait, or ask for less") and "\n" not in line
    assert isinstance(shell.error("import sublet\nsublet.lease('1TiB').acquire()"), sublet.TooLarge)
    assert "Traceback" in capsys.readouterr().out, "an error of the cell itself has its traceback"


def test_help_and_wrong_sizes(shell, place, capsys):
    shell.cell("%sublet --help")
    assert "--pausable" in capsys.readouterr().out
    assert isinstance(shell.error("%sublet 8Frob"), sublet.BadRequest)
    shell.cell("%sublet 1GiB")
    assert "%sublet release" in str(shell.error("%sublet 2GiB --tier batch"))


def test_a_lease_that_has_ended_is_taken_anew(shell, place, capsys):
    shell.cell("%sublet 1GiB --tag first")
    place.daemon.cli("stop", "first", check=0)
    shell.cell("%sublet 1GiB --tag second")
    assert "has ended" in capsys.readouterr().out
    assert [lease["tag"] for lease in place.leases("active")] == ["second"]


def test_a_restart_of_the_daemon_changes_nothing(shell, place):
    shell.cell("%sublet 1GiB --tag mine")
    place.daemon.restart()
    shell.cell("%sublet")
    assert [lease["tag"] for lease in place.leases("active")] == ["mine"]


@pytest.fixture
def full(place):
    """Another lease takes the card. It is given back once a cell waits and has said so."""
    other = sublet.lease("3GiB", name="other")
    contextvars.copy_context().run(other.acquire)
    threads = []

    def let_go_when(condition):
        def run():
            try:
                wait_until(lambda: place.leases("queued"), "the cell waits", 20)
                wait_until(condition, "the cell says that it waits", 20)
            finally:
                other.release()

        threads.append(threading.Thread(target=run))
        threads[0].start()

    yield let_go_when
    for thread in threads:
        thread.join()
    other.release()


def test_a_notebook_rewrites_one_output_while_it_waits(shell, full):
    from IPython.core.displaypub import CapturingDisplayPublisher
    publisher = CapturingDisplayPublisher()
    shell.ipython.display_pub, shell.ipython.kernel = publisher, types.SimpleNamespace()
    full(lambda: publisher.outputs)
    shell.cell("%sublet 2GiB")
    texts = [output["data"]["text/plain"] for output in publisher.outputs]
    assert "waits: place 1" in texts[0] and texts[-1].endswith("active")
    ids = {output["transient"]["display_id"] for output in publisher.outputs}
    assert len(ids) == 1 and [output["update"] for output in publisher.outputs] == [False] + [True] * (len(texts) - 1)


def test_without_a_display_the_wait_is_lines_of_text(shell, full, capsys):
    outputs = []
    full(lambda: outputs.append(capsys.readouterr().out) or "".join(outputs))
    shell.cell("%sublet 2GiB")
    text = "".join(outputs) + capsys.readouterr().out
    assert "waits: place 1" in text and text.endswith("active\n")


def test_an_interrupt_withdraws_the_request(shell, place, full):
    main = threading.main_thread().ident

    def interrupt():
        wait_until(lambda: place.leases("queued"), "the cell waits")
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert isinstance(shell.error("%sublet 2GiB"), KeyboardInterrupt)
    thread.join()
    assert len(place.leases()) == 1
    assert isinstance(shell.error("%sublet 2GiB --no-wait"), sublet.WouldWait)
    assert isinstance(shell.error("%sublet 2GiB --timeout 0.1"), sublet.WaitTimeout)


def test_an_interrupt_right_after_the_grant_keeps_the_lease_in_view(shell, place, monkeypatch):
    from sublet import jupyter
    with monkeypatch.context() as patch:
        patch.setattr(jupyter, "_text", lambda lease: signal.raise_signal(signal.SIGINT))
        assert isinstance(shell.error("%sublet 1GiB"), KeyboardInterrupt)
        assert len(place.leases("active")) == 1
        assert isinstance(shell.error("%%sublet 1GiB\npass"), KeyboardInterrupt)
    shell.cell("%sublet release")
    assert place.leases() == []


class Bytes:
    """Stands for the tensors of a notebook."""

    def __init__(self):
        self.calls, self.fail = [], 0

    def on_pause(self, order):
        self.calls.append("pause")

    def on_resume(self):
        self.calls.append("resume")
        if self.fail:
            self.fail -= 1
            raise MemoryError("once")


@pytest.fixture
def aside(shell):
    shell.ipython.user_ns["aside"] = made = Bytes()
    shell.cell("%sublet 3GiB --tier batch --tag mine --pause aside --pausable cooperative")
    return made


def state(place):
    return place.get("/v1/leases/mine")["state"]


def test_a_notebook_steps_aside_between_cells(shell, place, aside):
    place.daemon.cli("pause", "mine", check=0)
    assert aside.calls == ["pause"] and state(place) == "paused"
    shell.cell("%sublet")  # a cell that only asks is not kept waiting
    resume = threading.Thread(target=lambda: place.daemon.cli("resume", "mine", check=0))
    resume.start()
    assert shell.cell("len(aside.calls)") == 2, "the cell has waited for the bytes"
    resume.join()
    assert aside.calls == ["pause", "resume"] and state(place) == "active"


RUNNING = """
import sublet, threading
lease = sublet.current()
pause = place.daemon.spawn("sublet", "pause", "mine")
wait_until(lambda: lease._pauses.asked, "the order is there")
before = list(aside.calls)
threading.Thread(target=lambda: pause.wait(60) == 0 and place.daemon.cli("resume", "mine", check=0)).start()
lease.safe_point()
"""


def test_a_running_cell_is_paused_at_its_safe_points_only(shell, place, aside):
    shell.ipython.user_ns.update(place=place, wait_until=wait_until)
    assert shell.cell(RUNNING) is True
    assert shell.ipython.user_ns["before"] == [] and aside.calls == ["pause", "resume"]


def test_the_cell_that_loads_the_extension_is_not_disturbed_either(shell, place):
    shell.cell("%unload_ext sublet.jupyter")
    shell.ipython.user_ns.update(place=place, wait_until=wait_until, aside=Bytes())
    text = "%load_ext sublet.jupyter\n%sublet 3GiB --tag mine --pause aside --pausable cooperative" + RUNNING
    assert shell.cell(text) is True and shell.ipython.user_ns["before"] == []
    place.daemon.cli("pause", "mine", check=0)
    assert state(place) == "paused"
    place.daemon.cli("resume", "mine", check=0)
    shell.cell("%sublet release")


def test_an_interrupted_cell_does_not_run_during_a_pause(shell, place, aside, capsys):
    place.daemon.cli("pause", "mine", check=0)
    main, told = threading.main_thread().ident, []

    def interrupt():
        wait_until(lambda: told.append(capsys.readouterr().out) or "is paused" in "".join(told), "the cell waits")
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert "paused" in str(shell.error("ran = True"))
    thread.join()
    assert re.search(r"lease-\d+ is paused: .+\. The cell starts when it is resumed", "".join(told)), told
    assert "`!sublet resume" in (shell.error("%sublet 4GiB")._render_traceback_())[0]
    assert "ran" not in shell.ipython.user_ns and state(place) == "paused"
    refused = shell.error("%sublet release")
    assert isinstance(refused, sublet.InUse) and "sublet resume" in refused.hint and state(place) == "paused"
    place.daemon.cli("resume", "mine", check=0)
    shell.cell("ran = True")
    shell.cell("%sublet release")
    assert place.leases() == [] and aside.calls == ["pause", "resume"]


def test_a_callback_that_fails_is_told_and_tried_again(shell, place, aside, capfd):
    aside.fail = 1
    place.daemon.cli("pause", "mine", check=0)
    place.daemon.cli("resume", "mine", check=0)
    shell.cell("pass")
    assert aside.calls == ["pause", "resume", "resume"]
    wait_until(lambda: state(place) == "active", "it has its bytes")


def test_after_an_end_during_a_pause_cells_run_and_the_loss_is_told(shell, place, aside, capfd):
    place.daemon.cli("pause", "mine", check=0)
    pauses = shell.ipython.magics_manager.magics["line"]["sublet"].__self__.lease._pauses
    with pauses._changed:  # a daemon that ends a paused lease at once
        pauses._over = True
        pauses._notify()
    shell.cell("ran = True")
    assert aside.calls == ["pause"] and "take another lease" in capfd.readouterr().err
    shell.cell("%sublet release")
