# SPDX-License-Identifier: Apache-2.0
"""Verbs and texts of stacks: restart, pull, several at once, pausing, and what the tables tell."""
import json
import os
import pathlib
import subprocess

from tests.support.stacks import place, service, two  # noqa: F401 (a fixture)
from tests.support.sublet import wait_until


def cli(place, *arguments, check=0):
    return place.daemon.cli("stack", *arguments, check=check)


def test_restart_replaces_the_containers_under_the_same_lease(place):
    directory = place.write("chat", {"api": service(environment={"MODE": "old"})}, vram="1GiB")
    place.start()
    chat = place.ready("chat")
    before = place.engine.find("chat", "api").id
    assert "stack chat is ready: lease-1" in cli(place, "restart", "chat").stderr
    again = place.engine.find("chat", "api").id
    assert again != before and place.get("chat")["lease"] == chat["lease"]
    document = json.loads((directory / "compose.yaml").read_text())
    document["services"]["api"]["environment"]["MODE"] = "new"
    (directory / "compose.yaml").write_text(json.dumps(document))
    cli(place, "restart", "chat")
    assert place.engine.find("chat", "api").environment["MODE"] == "new"
    place.compose.on("up", "fail", text="no such image")
    failed = cli(place, "restart", "chat", check=1)
    assert "no such image" in failed.stderr, failed.stderr
    place.reaches("chat", "failed")
    refused = cli(place, "restart", "chat", check=1)
    assert "nobody has acquired it" in refused.stderr and not place.daemon.leases()


def test_pull_starts_nothing(place):
    place.write("chat", vram="1GiB")
    place.start()
    assert "the images of stack chat are pulled" in cli(place, "pull", "chat").stderr
    assert len(place.compose.calls("pull")) == 1 and place.ups() == [] and place.states() == {"chat": "down"}
    place.compose.on("pull", "fail", text="manifest unknown")
    assert "could not pull the images of stack 'chat': manifest unknown" in cli(place, "pull", "chat", check=1).stderr


def test_several_stacks_are_acquired_all_or_none(place):
    for name in ("chat", "voice"):
        place.write(name, vram="1GiB")
    place.write("image", vram="3GiB")
    place.start()
    both = json.loads(cli(place, "acquire", "voice", "chat", "--json").stdout)
    assert [(one["name"], one["state"]) for one in both] == [("chat", "ready"), ("voice", "ready")]
    place.post("voice", "release", {"down": True}, both[1]["token"])
    place.reaches("voice", "down")
    refused = cli(place, "acquire", "voice", "image", check=75)
    assert "sublet stack acquire --wait" in refused.stderr
    assert place.states() == {"chat": "ready", "image": "down", "voice": "down"}


def test_stacks_that_are_acquired_already_are_kept_while_the_next_one_is_waited_for(place):
    for name in ("chat", "voice"):
        place.write(name, vram="1GiB")
    place.start()
    voice = place.ready("voice")
    both = place.daemon.spawn("sublet", "stack", "acquire", "chat", "voice", "--wait", "--ttl", "12s", "--json")
    ends = place.reaches("chat", "ready")["expires_at"]
    for _ in range(2):
        ends = wait_until(lambda was=ends: (now := place.get("chat")["expires_at"]) != was and now, "it is renewed")
    place.post("voice", "release", {}, voice["token"])
    out, _ = both.communicate(timeout=120)
    assert both.returncode == 0 and [one["state"] for one in json.loads(out)] == ["ready", "ready"], out


def test_ports_and_the_cause_of_a_failure_are_shown(place):
    place.write("chat", {"api": service(**{"x-ports": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}]}})},
                vram="1GiB")
    place.write("image", vram="1GiB")
    place.start()
    cli(place, "acquire", "chat")
    assert "127.0.0.1:8080->80/tcp" in cli(place, "ls", "-o", "name,ports").stdout
    assert "127.0.0.1:8080->80/tcp" in cli(place, "status", "chat").stdout
    lines = ["Container image-api-1  Creating", "Container image-api-1  Created",
             "Error response from daemon: Bind for 127.0.0.1:80 failed: port is already allocated"]
    place.compose.on("up", "fail", text="\n".join(lines))
    refused = cli(place, "acquire", "image", check=1)
    assert "could not start stack 'image': Error response from daemon: Bind" in refused.stderr
    assert "\\x0a" not in refused.stderr and f"    {lines[0]}\n" in refused.stderr, refused.stderr
    table = cli(place, "ls").stdout
    assert "port is already allocated" in table and "Creating" not in table and "\\x0a" not in table, table
    shown = cli(place, "status", "image").stdout
    assert all(line in shown for line in lines) and "\\x0a" not in shown, shown


def test_a_dead_service_beside_the_master_is_named(place):
    place.write("chat", {"api": service(), "worker": {"image": "busybox"}}, vram="1GiB")
    place.start()
    place.ready("chat")
    place.engine.die("chat", "worker", 3)
    why = wait_until(lambda: place.get("chat")["why"], "it is named")
    assert "chat-worker-1 of service worker is exited with exit code 3" in why and place.get("chat")["state"] == "ready"


def test_a_missing_master_ends_the_lease(place):
    place.write("chat", {"api": service(), "init": {"image": "busybox"}}, vram="1GiB")
    place.start()
    place.ready("chat")
    place.engine.die("chat", "init", 0)
    place.engine.remove(place.engine.find("chat", "api"))
    failed = place.reaches("chat", "failed")
    assert "no container has the label" in failed["why"] and not place.daemon.leases()


def test_a_found_stack_without_a_label_is_adopted_where_it_is(place):
    directory = place.write("none", {"api": service(master=False)}, vram="1GiB")
    place.start()
    refused = place.acquire("none")
    assert "sublet stack adopt DIRECTORY" in refused["hint"]
    cli(place, "adopt", directory)
    assert place.get("none")["rule"] == "containers"
    place.ready("none")
    cli(place, "release", "none", "--down")
    place.reaches("none", "down")
    cli(place, "rm", "none")
    wait_until(lambda: place.states() == {"none": "down"} and not place.get("none")["rule"], "it is found as before")


def test_pausing_is_a_setting(place):
    place.write("chat", vram="1GiB", pausable=False)
    place.write("voice", vram="1GiB")
    place.start()
    chat, voice = place.ready("chat"), place.ready("voice")
    assert (chat["pausable"], voice["pausable"]) == (False, True)
    leases = {lease["id"]: lease for lease in place.daemon.leases()}
    assert leases[chat["lease"]]["pausable"] == "no" and leases[voice["lease"]]["pausable"] == "auto"
    cli(place, "set", "chat", "--pausable", "yes")
    assert place.get("chat")["pausable"] is True and place.get("chat")["set"]["pausable"] is True


def test_help_for_a_waiter_is_about_stacks(place):
    two(place)
    place.ready("chat")
    waits = place.acquire("image", wait=0)
    helps = json.dumps(place.api.get(f"/v1/leases/{waits['lease']}/why").body)
    assert "sublet stack release chat --down" in helps and "sublet stop lease-1" not in helps, helps


def test_the_size_of_a_broken_stack_is_unknown_and_that_of_a_lease_is_shown(place):
    directory = place.write("chat", vram="256MiB")
    place.start()
    place.ready("chat")
    (pathlib.Path(directory) / "compose.yaml").write_text("services: {")
    wait_until(lambda: place.get("chat")["error"], "it is broken")
    assert "256 MiB" in cli(place, "ls").stdout
    cli(place, "release", "chat", "--down")
    place.reaches("chat", "down")
    assert place.get("chat")["vram_bytes"] is None


def test_a_paused_stack_resumes_when_it_is_acquired_and_its_lease_ends_with_it(place):
    """Its program is a process on the simulated card, booked to the lease by hand."""
    place.write("chat", vram="2GiB", tier="batch")
    place.start()
    program = place.daemon.spawn("simgpu-load", "--alloc", "512MiB", "--seconds", "600", stdout=subprocess.DEVNULL)
    try:
        chat = place.ready("chat")
        assert place.daemon.cli("attach", chat["lease"], "--pid", str(program.pid), check=None) is not None
        wait_until(lambda: any(row["lease"] == chat["lease"] for row in place.api.get("/v1/processes")["processes"]),
                   "it is booked")
        assert place.daemon.cli("pause", chat["lease"], check=0), "it may be paused without a grant"
        wait_until(lambda: place.get("chat")["lease_state"] == "paused", "it is paused")
        renewed = cli(place, "renew", "chat")
        assert place.get("chat")["lease_state"] == "active", renewed.stderr
        assert place.daemon.cli("pause", chat["lease"], check=0)
        wait_until(lambda: place.get("chat")["lease_state"] == "paused", "it is paused again")
        place.post("chat", "release", {}, chat["token"])
        assert "stack chat is ready" in cli(place, "acquire", "chat").stderr
        assert (place.get("chat")["state"], place.get("chat")["lease_state"]) == ("ready", "active")
        place.daemon.cli("pause", chat["lease"], check=0)
        wait_until(lambda: place.get("chat")["lease_state"] == "paused", "it is paused once more")
        os.kill(program.pid, 9)
        cli(place, "release", "chat", "--down")
        place.reaches("chat", "down")
        assert not place.daemon.leases(), "its lease ends with it"
        place.ready("chat")
    finally:
        if program.poll() is None:
            program.kill()
        program.wait()
