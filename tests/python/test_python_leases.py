# SPDX-License-Identifier: Apache-2.0
"""Leases as context managers and decorators: what they reserve, show and give back."""
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

import pytest

import sublet
from tests.support.sublet import GIB, MIB, wait_until


def test_a_lease_reserves_its_memory_and_gives_it_back(place):
    with sublet.lease("1GiB", name="embed", tag="it", tier="interactive", gpu="gpu0") as lease:
        shown = place.get("/v1/leases/it").body
        assert lease.id == shown["id"] and lease.vram_bytes == GIB == shown["vram_bytes"]
        assert shown["state"] == "active" and shown["consumer"] == "embed" and shown["tier"] == "interactive"
        assert shown["owner"] == {"kind": "process", "pid": os.getpid(), "keeper_pid": None,
                                  "keeper_killed": False, "cgroup": None}
        assert list(lease.devices) == shown["devices"] and lease.device == shown["devices"][0]
        assert lease.device_names == ("gpu0",)
        assert lease.held and not lease.nested and lease.refresh()["id"] == lease.id
        assert sublet.current() is lease
    assert sublet.current() is None
    assert not lease.held and place.get(f"/v1/leases/{lease.id}")["end_reason"] == "released"
    with pytest.raises(sublet.LeaseEnded) as ended:
        lease.refresh()
    assert ended.value.numbers == {"end_reason": "released"}
    with pytest.raises(sublet.NotHeld):
        lease.resize("2GiB")


def test_an_exception_gives_the_lease_back(place):
    with pytest.raises(ZeroDivisionError):
        with sublet.lease("1GiB"):
            1 / 0
    assert place.leases() == []


def test_one_object_can_be_taken_again_but_not_twice(place):
    lease = sublet.lease("1GiB")
    with lease:
        first = lease.id
        with pytest.raises(sublet.InUse):
            lease.acquire()
    with lease:
        assert lease.id != first
    lease.release()


def test_a_lease_that_is_not_acquired_says_so(place):
    lease = sublet.lease("1GiB")
    assert "not acquired" in repr(lease)
    for use in (lambda: lease.id, lambda: lease.devices, lease.why, lambda: lease.resize(1 << 20)):
        with pytest.raises(sublet.NotHeld):
            use()


def test_the_variables_are_there_while_the_lease_is_held(place, monkeypatch):
    with sublet.lease("1GiB") as lease:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == lease.device and os.environ["SUBLET_LEASE"] == lease.id
        assert lease.env["SUBLET_LEASE_BYTES"] == str(GIB) and "LD_LIBRARY_PATH" in lease.env
        seen = subprocess.run(["simgpu-load", "--alloc", "64MiB", "--seconds", "0", "--json"], capture_output=True,
                              env={**os.environ, **lease.env}, check=True)
        assert json.loads(seen.stdout.splitlines()[-1])["ok"]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ and "SUBLET_LEASE" not in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with sublet.lease("1GiB") as lease:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == lease.device
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")


def test_initialised_cuda_keeps_its_variables(place, monkeypatch):
    class Torch:
        class cuda:
            is_initialized = staticmethod(lambda: True)

    monkeypatch.setitem(sys.modules, "torch", Torch)
    with sublet.lease("1GiB") as lease:
        assert "CUDA_VISIBLE_DEVICES" not in os.environ and lease.env["CUDA_VISIBLE_DEVICES"] == lease.device


def test_after_the_first_use_of_cuda_a_lease_is_on_a_device_that_cuda_sees(start_place, monkeypatch):
    class Torch:
        class cuda:
            is_initialized = staticmethod(lambda: bool(used))

    used = []
    place = start_place("3x4GiB")
    monkeypatch.setitem(sys.modules, "torch", Torch)
    monkeypatch.setattr("sublet._held._fixed", None)
    with sublet.lease("1GiB", gpu="gpu1") as first:
        used.append("cuda")
    with place.daemon.spawn("sublet", "hold", "--vram", "2GiB", "--gpu", "gpu1", "--tag", "other"):
        wait_until(lambda: place.leases("active"), "other devices have more free memory")
        with sublet.lease("1GiB") as second:
            assert second.devices == first.devices, "CUDA sees no other device"
        place.daemon.cli("release", "other", check=0)
    with pytest.raises(sublet.BadRequest, match="fewer than gpus=2"):
        sublet.lease("1GiB", gpus=2).acquire()
    with sublet.lease("1GiB", gpu="gpu0") as third:
        assert third.devices != first.devices, "a device by name may be for a child program"


def test_several_leases_show_all_their_devices(start_place):
    start_place("2x4GiB")
    first, second = sublet.lease("1GiB", gpu="gpu1"), sublet.lease("1GiB", gpu="gpu0")
    first.acquire()
    thread = threading.Thread(target=second.acquire)  # another thread is not inside the first lease
    thread.start()
    thread.join()
    assert not second.nested and os.environ["CUDA_VISIBLE_DEVICES"] == f"{first.device},{second.device}"
    first.release()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == second.device and os.environ["SUBLET_LEASE"] == second.id
    second.release()


def test_the_users_own_variable_names_the_devices(start_place, monkeypatch):
    place = start_place("3x4GiB")
    uuids = [device["uuid"] for device in place.get("/v1/devices")["devices"]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with sublet.lease("1GiB") as lease:
        assert lease.device == uuids[2]
    with sublet.lease("1GiB", gpu=1) as lease:
        assert lease.device == uuids[1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with sublet.lease("1GiB"):
        pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    with place.daemon.spawn("sublet", "hold", "--vram", "3GiB", "--gpu", "gpu1", "--tag", "other"):
        wait_until(lambda: place.leases("active"), "gpu1 is taken")
        with sublet.lease("2GiB") as lease:
            assert lease.device == uuids[2]
        place.daemon.cli("release", "other", check=0)
    with sublet.lease("1GiB", gpus=2) as both:
        assert list(both.devices) == uuids[1:]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with sublet.lease("1GiB", gpu=[0, "gpu2"], gpus=2) as both:
        assert list(both.devices) == [uuids[0], uuids[2]]
    with sublet.lease("1GiB", gpu="gpu1,gpu2") as lease:
        assert lease.device in uuids[1:]
    with pytest.raises(ValueError):
        sublet.lease("1GiB", gpu=[])
    for value, gpus in (("0,1", 3), ("0,7", 1), ("-1", 1), ("", 1)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        with pytest.raises(sublet.BadRequest) as refused:
            sublet.lease("1GiB", gpus=gpus).acquire()
        assert "gpu=" in refused.value.hint
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")


def test_a_lease_grows_and_shrinks(place):
    with sublet.lease("1GiB") as lease:
        lease.resize("2GiB")
        assert lease.vram_bytes == 2 * GIB == place.get(f"/v1/leases/{lease.id}")["vram_bytes"]
        assert os.environ["SUBLET_LEASE_BYTES"] == str(2 * GIB)
        lease.resize(512 * MIB)
        assert lease.vram_bytes == 512 * MIB
        with pytest.raises(sublet.TooLarge):
            lease.resize("64GiB")
        with place.daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "other"):
            wait_until(lambda: place.get("/v1/leases/other").status == 200, "the other lease is there")
            with pytest.raises(sublet.WouldWait):
                lease.resize("2GiB", wait=False)
            with pytest.raises(sublet.WaitTimeout):
                lease.resize("2GiB", timeout=0.1)
            now = lease.refresh()
            assert now["vram_bytes"] == 512 * MIB and now["resize"] is None, "the wish to grow is withdrawn"
            told = []

            def told_once(waiting):
                told.append(waiting)
                place.daemon.cli("release", "other", check=0)

            lease.resize("2GiB", on_wait=lambda waiting: told or told_once(waiting))
            assert lease.vram_bytes == 2 * GIB and told[0].short_bytes > 0


def test_why_tells_the_decisions(place):
    with sublet.lease("1GiB") as lease:
        why = lease.why()
        assert why.state == "active" and why.reasons[-1].code == "granted" and "granted 1.0 GiB" in str(why)
        age = datetime.datetime.now(datetime.timezone.utc) - why.reasons[-1].when
        assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=5)
        assert re.search(r"^ *\d+[sm] ago  granted", str(why), re.M), str(why)


# --- nesting ---

def test_a_nested_lease_uses_the_outer_lease(place):
    with sublet.lease("2GiB") as outer:
        with sublet.lease("1GiB", tier="spot", gpus=1) as inner:
            assert inner.nested and inner.id == outer.id and inner.vram_bytes == GIB
            assert len(place.leases()) == 1
            with sublet.lease(GIB, min_vram="1MiB") as innermost:
                assert innermost.id == outer.id
        assert outer.held and place.leases()[0]["state"] == "active", "the end of the inner lease changes nothing"
        with pytest.raises(sublet.TooLarge) as refused:
            sublet.lease("3GiB").acquire()
        assert outer.id in refused.value.message and "resize" in refused.value.hint
        assert refused.value.numbers == {"asked_bytes": 3 * GIB, "most_bytes": 2 * GIB}
        with sublet.lease("3GiB", min_vram="1GiB") as smaller:
            assert smaller.vram_bytes == 2 * GIB
        outer.resize("3GiB")
        with sublet.lease("3GiB"):
            pass
        with pytest.raises(sublet.TooLarge) as refused:
            sublet.lease("1GiB", gpus=2).acquire()
        assert refused.value.numbers == {"asked_devices": 2, "most_devices": 1}


def test_a_lease_inside_sublet_run_uses_its_lease(place):
    text = ("import sublet\n"
            "with sublet.lease('1GiB') as lease:\n"
            "    print(lease.id, lease.nested)\n"
            "try: sublet.lease('3GiB').acquire()\n"
            "except sublet.TooLarge as error: print(error.hint)\n")
    done = place.daemon.cli("run", "-q", "--vram", "2GiB", "--", sys.executable, "-c", text, check=0,
                            PYTHONPATH=place.env()["PYTHONPATH"])
    assert re.fullmatch(r"lease-1 True\nask for 2.0 GiB or less, or resize it first: .*lease-1 SIZE\n", done.stdout)


def test_a_lease_inside_an_ended_lease_is_refused(place):
    with sublet.lease("2GiB") as outer:
        place.daemon.cli("release", outer.id, "--force", check=0)
        with pytest.raises(sublet.LeaseEnded, match=outer.id):
            sublet.lease("1GiB").acquire()
    assert place.leases() == []


def test_a_folder_with_a_slash_at_its_end_names_the_same_daemon(place, tmp_path, monkeypatch):
    (tmp_path / "sublet").mkdir()
    (tmp_path / "sublet/sublet.sock").symlink_to(place.daemon.socket)
    monkeypatch.delenv("SUBLET_HOST")
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"{tmp_path}/")
    with sublet.lease("2GiB") as outer, sublet.lease("1GiB") as inner:
        assert inner.nested and inner.id == outer.id
        assert os.environ["SUBLET_HOST"] == f"unix://{tmp_path}/sublet/sublet.sock"


def test_a_copied_variable_is_no_outer_lease(place, monkeypatch):
    with place.daemon.spawn("sublet", "hold", "--vram", "2GiB", "--tag", "other"):
        other = wait_until(lambda: place.leases("active"), "the other lease is there")[0]
        monkeypatch.setenv("SUBLET_LEASE", other["id"])
        with sublet.lease("1GiB") as lease:
            assert not lease.nested and lease.id != other["id"]
        monkeypatch.delenv("SUBLET_LEASE")
        place.daemon.cli("release", "other", check=0)


# --- decorators, programs, status ---

def test_a_decorated_function_has_a_lease_for_each_call(place):
    @sublet.leased("1GiB", name="twice")
    def twice(number):
        """Doubles."""
        return 2 * number, sublet.current().id

    assert twice(21) == (42, "lease-1") and twice(4) == (8, "lease-2") and twice.__doc__ == "Doubles."
    assert place.leases() == []


def test_a_generator_is_refused_by_the_decorator():
    def numbers():
        yield 1

    async def async_numbers():
        yield 1

    for function in (numbers, async_numbers):
        with pytest.raises(TypeError, match="is a generator"):
            sublet.leased("1GiB")(function)


def test_run_gives_the_exit_status(place):
    done = sublet.run(["sh", "-c", "echo $SUBLET_LEASE_BYTES; exit 7"], vram="1GiB", name="job", capture_output=True,
                      text=True)
    assert done.returncode == 7 and done.stdout == f"{GIB}\n"
    assert sublet.run([pathlib.Path("/bin/true")], vram=GIB).returncode == 0
    with pytest.raises(subprocess.CalledProcessError):
        sublet.run(["false"], vram="1GiB", check=True, timeout=60, tier="batch", gpu="gpu0")
    with sublet.lease("3GiB"):
        assert sublet.run(["true"], vram="1GiB").returncode == 0, "it uses the lease of this process"
    with pytest.raises(sublet.NotFound) as missing:
        sublet.run(["true"], vram="1GiB", env={"PATH": "/nowhere"})
    assert "PATH" in missing.value.hint


def test_ctrl_c_ends_the_program_of_run(place):
    text = ("import sublet\n"
            "script = 'trap \"echo ending; exit 3\" TERM; echo begun; while :; do sleep 1 & wait $!; done'\n"
            "try: sublet.run(['sh', '-c', script], vram='1GiB')\n"
            "except KeyboardInterrupt: print('interrupted', flush=True)\n")
    child = place.python(text)
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "ending\n" and child.stdout.readline() == "interrupted\n"
    assert child.wait(60) == 0 and place.leases() == []


def test_run_sends_input(place):
    done = sublet.run(["cat"], vram="1GiB", input="text", text=True, capture_output=True)
    assert done.stdout == "text" and done.returncode == 0


def test_status_shows_devices_and_counts(place):
    with sublet.lease("1GiB"):
        status = sublet.status()
    assert status.leases["active"] == 1 and status.version == status.raw["daemon"]["version"]
    device = status.devices[0]
    assert device.id == "gpu0" and device.leased_bytes == GIB and device.total_bytes == 4 * GIB
