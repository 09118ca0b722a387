# SPDX-License-Identifier: Apache-2.0
"""Stacks on a fake engine: they take turns, wait, and are acquired and released."""
import json
import pathlib
import signal
import subprocess
import threading

import pytest

from tests.e2e.test_metrics import scrape
from tests.support.stacks import LABEL, place, service, two  # noqa: F401 (a fixture)
from tests.support.sublet import GIB, wait_until


# --- the ordinary path ---

def test_two_stacks_take_turns(place):
    two(place)
    assert place.states() == {"chat": "down", "image": "down"}
    chat = place.ready("chat", ttl_seconds=600, owner="bot")
    assert (chat["lease_state"], chat["on"], chat["granted_bytes"]) == ("active", ["gpu0"], 2 * GIB)
    assert (chat["owner"], chat["rule"], chat["size_from"]) == ("bot", "label", "file")
    renewed = place.post("chat", "renew", {"ttl_seconds": 9000}, chat["token"])
    assert renewed.status == 200 and renewed["expires_at"] > chat["expires_at"]
    released = place.post("chat", "release", {}, chat["token"])
    assert (released["state"], place.get("chat")["containers"][0]["status"]) == ("released", "running")
    assert place.daemon.get(f"/v1/leases/{chat['lease']}")["tier"] == "spot"
    image = place.ready("image")
    assert place.states() == {"chat": "down", "image": "ready"}
    assert place.ups() == ["chat", "image"] and place.downs() == ["chat"]
    assert place.daemon.get(f"/v1/leases/{chat['lease']}")["end_reason"] == "revoked"
    assert place.post("image", "release", {"down": True}, image["token"]).status == 200
    place.reaches("image", "down")
    assert not place.engine.containers


def test_containers_get_their_lease_without_a_changed_file(place):
    two(place)
    text = (place.stacks / "chat" / "compose.yaml").read_text()
    chat = place.ready("chat")
    container = place.engine.find("chat", "api")
    uuid = place.daemon.get("/v1/devices")["devices"][0]["uuid"]
    assert container.environment["SUBLET_LEASE"] == chat["lease"] == container.labels["sublet.lease"]
    assert container.environment["CUDA_VISIBLE_DEVICES"] == uuid and container.labels["sublet.stack"] == "chat"
    assert (place.stacks / "chat" / "compose.yaml").read_text() == text


def test_stacks_that_fit_run_together_unless_one_is_exclusive(place):
    place.write("chat", vram="1GiB")
    place.write("voice", vram="1GiB")
    place.start()
    chat, voice = place.ready("chat"), place.ready("voice")
    assert place.states() == {"chat": "ready", "voice": "ready"}
    assert place.post("voice", "set", {"exclusive": True})["size_from"] == "exclusive"
    place.post("voice", "release", {"down": True}, voice["token"])
    place.reaches("voice", "down")
    waits = place.acquire("voice", wait=0)
    assert waits.status == 202 and waits["state"] == "queued" and waits["queue"]["place"] == 1
    refused = place.post("chat", "acquire", {"wait_seconds": 0})
    assert refused.status == 409 and refused["code"] == "InUse"
    assert place.get("chat")["state"] == "ready", "an acquired stack is never brought down for another"
    place.post("chat", "release", {"down": True}, chat["token"])
    assert place.acquire("voice", token=waits["token"]).status == 200


def test_stacks_are_counted_by_state(place):
    two(place)
    place.ready("chat")
    samples = scrape(place.api)["sublet_stacks"]
    assert {key: count for key, count in samples.items() if count} == {'{state="ready"}': 1, '{state="down"}': 1}


def test_why_tells_what_a_queued_stack_waits_for(place):
    two(place)
    place.ready("chat")
    waits = place.acquire("image", wait=0)
    assert waits.status == 202
    why = place.daemon.cli("why", "stack-image", check=0).stdout
    assert "stack-chat" in why, why


def test_progress_is_told_by_states_and_events(place):
    place.engine.auto_healthy = False
    two(place)
    first = place.acquire("chat", wait=0)
    assert first.status == 202
    states, state = [first["state"]], first["state"]
    while state != "starting":
        now = place.acquire("chat", token=first["token"], since=state)
        states.append(state := now["state"])
    assert states in (["creating", "starting"], ["starting"])
    wait_until(lambda: place.get("chat")["why"], "a container is named")
    place.engine.set_health("chat", "api", "healthy")
    ready = place.acquire("chat", token=first["token"])
    assert ready.status == 200 and ready["expires_at"]
    told = [event["state"] for event in place.events()]
    assert [state for at, state in enumerate(told) if at == 0 or told[at - 1] != state] == [
        "creating", "starting", "ready"], told


def test_the_command_line_goes_the_whole_way(place, tmp_path):
    place.write("chat", vram="2GiB")
    outside = place.write("image", {"web": {"image": "busybox"}}, into=tmp_path, vram="3GiB")
    place.start()
    def cli(*arguments, check=0):
        return place.daemon.cli(*arguments, check=check)
    adopted = cli("stack", "adopt", outside)
    assert f"stack image is {outside}/compose.yaml" in adopted.stderr
    table = cli("stack", "ls").stdout
    assert "chat" in table and "image" in table and "containers" in table and "label" in table
    got = cli("stack", "acquire", "chat", "--wait", "--ttl", "10m")
    assert "stack chat is ready: lease-1, 2.0 GiB on gpu0; its time to live is over in" in got.stderr, got.stderr
    assert json.loads(cli("stack", "status", "chat", "--json").stdout)["state"] == "ready"
    assert "ready when" in cli("stack", "status", "chat").stdout
    place.engine.log("chat", "api", "hello from the container")
    assert "hello from the container" in cli("stack", "logs", "chat", "-n", "5").stdout
    assert "10m" not in cli("stack", "renew", "chat", "--ttl", "1h").stderr
    assert "stack chat is released" in cli("stack", "release", "chat").stderr
    waiting = place.daemon.spawn("sublet", "stack", "acquire", "image", "--wait=60s", stderr=subprocess.PIPE)
    assert "stack image is ready" in waiting.communicate(timeout=90)[1]
    assert place.states() == {"chat": "down", "image": "ready"}
    busy = cli("stack", "rm", "image", check=1)
    assert "stack image is ready" in busy.stderr and "release image --down" in busy.stderr
    cli("stack", "set", "image", "--vram", "1GiB", "--tier", "batch")
    cli("stack", "release", "image", "--down")
    place.reaches("image", "down")
    assert "stack image is forgotten" in cli("stack", "rm", "image").stderr
    assert place.states() == {"chat": "down"} and outside.exists()


def test_a_waiting_command_that_is_interrupted_leaves_the_queue(place):
    two(place)
    place.ready("chat")
    waiting = place.daemon.spawn("sublet", "stack", "acquire", "image", "--wait", stderr=subprocess.PIPE)
    place.reaches("image", "queued")
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(60) == -signal.SIGINT
    place.reaches("image", "down")


def test_a_command_that_is_interrupted_before_its_first_answer_leaves_the_queue(place):
    two(place)
    place.ready("chat")
    place.daemon.process.send_signal(signal.SIGSTOP)
    waiting = place.daemon.spawn("sublet", "stack", "acquire", "image", "--wait", stderr=subprocess.PIPE)
    wait_until(lambda: takes_signals(waiting.pid), "the command takes signals itself")
    waiting.send_signal(signal.SIGINT)
    place.daemon.process.send_signal(signal.SIGCONT)
    assert waiting.wait(60) == -signal.SIGINT
    place.reaches("image", "down")
    assert place.api.get("/v1/status")["leases"]["queued"] == 0


def takes_signals(pid):
    """Tells whether the process has SIGINT blocked or caught."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return any(int(line.split()[1], 16) & 1 << signal.SIGINT - 1
               for line in status.splitlines() if line.startswith(("SigBlk:", "SigCgt:")))


def test_without_wait_the_memory_of_a_released_stack_is_taken_and_no_other(place):
    two(place)
    assert place.daemon.cli("stack", "acquire", "chat", check=0)
    refused = place.daemon.cli("stack", "acquire", "image", check=75)
    assert "sublet stack acquire --wait" in refused.stderr and "held by lease-1 (stack-chat" in refused.stderr
    place.daemon.cli("stack", "release", "chat", check=0)
    assert "stack image is ready" in place.daemon.cli("stack", "acquire", "image", check=0).stderr
    assert place.states() == {"chat": "down", "image": "ready"}


def test_the_time_of_wait_is_kept(place):
    two(place)
    place.ready("chat")
    late = place.daemon.cli("stack", "acquire", "image", "--wait=1s", check=124)
    assert "stack image is queued after 1 s" in late.stderr
    place.reaches("image", "down")


# --- acquisitions ---

def test_a_released_stack_is_taken_over_at_once(place):
    two(place)
    chat = place.ready("chat")
    place.post("chat", "release", {}, chat["token"])
    again = place.ready("chat", wait=0)
    assert again["lease"] == chat["lease"] and again["token"] != chat["token"] and place.ups() == ["chat"]
    assert place.daemon.get(f"/v1/leases/{chat['lease']}")["tier"] == "standard"
    stale = place.post("chat", "renew", {}, chat["token"])
    assert stale.status == 403, "the first acquisition is over"


def test_a_released_stack_that_is_unhealthy_is_started_anew(place):
    two(place)
    chat = place.ready("chat")
    place.post("chat", "release", {}, chat["token"])
    place.engine.set_health("chat", "api", "unhealthy")
    wait_until(lambda: "is unhealthy" in (place.get("chat")["why"] or ""), "the daemon knows")
    again = place.ready("chat")
    assert again["lease"] != chat["lease"]
    assert place.ups() == ["chat", "chat"] and place.downs() == ["chat"]
    place.post("chat", "release", {}, again["token"])
    place.engine.set_health("chat", "api", "unhealthy")
    wait_until(lambda: "is unhealthy" in (place.get("chat")["why"] or ""), "the daemon knows again")
    assert "stack chat is ready" in place.daemon.cli("stack", "acquire", "chat", check=0).stderr


def test_a_caller_waits_for_a_stack_that_somebody_else_has(place):
    two(place)
    chat = place.ready("chat")
    replies = []
    api = place.daemon.api()
    thread = threading.Thread(target=lambda: replies.append(api.post("/v1/stacks/chat/acquire", {"wait_seconds": 60})))
    thread.start()
    wait_until(lambda: place.post("chat", "release", {}, chat["token"]).status == 200, "it is released")
    thread.join(90)
    assert replies[0].status == 200 and replies[0]["state"] == "ready" and place.ups() == ["chat"]


def test_the_time_to_live_ends_an_acquisition(place):
    two(place)
    chat = place.ready("chat")
    assert place.post("chat", "renew", {"ttl_seconds": 1}, chat["token"]).status == 200
    place.reaches("chat", "released")
    assert place.get("chat")["why"] == "its time to live is over"
    assert place.post("chat", "renew", {}, chat["token"]).status == 403


@pytest.mark.parametrize("call", ["acquire", "renew", "release"])
def test_somebody_elses_token_is_refused(place, call):
    two(place)
    place.ready("chat")
    refused = place.post("chat", call, {}, "0123456789abcdef0123456789abcdef")
    assert refused.status == 403 and "the token is not that of the acquisition of stack chat" in refused["detail"]
    assert place.get("chat")["state"] == "ready"


def test_a_crowd_with_bad_tokens_changes_nothing(place):
    two(place)
    chat = place.ready("chat")
    apis = [place.daemon.api() for _ in range(20)]

    def storm(api, number):
        for call in range(10):
            verb = ("acquire", "renew", "release")[call % 3]
            reply = api.call("POST", f"/v1/stacks/chat/{verb}", {}, Sublet_Lease_Token=f"bad-{number}-{call}")
            assert reply.status == 403

    threads = [threading.Thread(target=storm, args=(api, number)) for number, api in enumerate(apis)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert place.post("chat", "renew", {}, chat["token"]).status == 200
    assert len(place.daemon.leases(all=True)) == 1


def test_a_retried_acquisition_has_the_same_token(place):
    two(place)
    key = {"Idempotency_Key": "one-acquisition"}
    first = place.api.call("POST", "/v1/stacks/chat/acquire", {"wait_seconds": 60}, **key)
    second = place.api.call("POST", "/v1/stacks/chat/acquire", {"wait_seconds": 60}, **key)
    assert first.status == second.status == 200 and first["token"] == second["token"]
    assert len(place.daemon.leases(all=True)) == 1


# --- bad input ---

def test_unknown_and_unusable_stacks_say_why(place):
    place.write("none", {"api": service(master=False)})
    place.write("twice", {"api": service(), "web": service()})
    place.write("scaled", {"api": service(deploy={"replicas": 2})})
    place.write("size", vrm="2GiB")
    broken = place.stacks / "broken"
    broken.mkdir(mode=0o700)
    (broken / "compose.yaml").write_text("services:\n  api: {image: busybox\n  - x\n")
    place.start()
    for name, status, text in (("none", 400, f"no service with the label {LABEL}=true"),
                               ("twice", 400, "2 services with the label"),
                               ("scaled", 400, "2 replicas"),
                               ("size", 400, "unknown field 'vrm'"),
                               ("nome", 404, "there is no stack 'nome' – did you mean 'none'?")):
        refused = place.acquire(name)
        assert refused.status == status and text in refused["detail"] and refused["hint"], (name, refused)
    refused = place.acquire("broken")
    assert refused.status in (400, 409) and "compose.yaml" in refused["detail"], refused
    assert place.ups() == [] and all(row["error"] for row in place.api.get("/v1/stacks")["stacks"])
    listed = place.daemon.cli("stack", "ls", check=0).stdout
    assert "has the unknown field 'vrm'" in listed


@pytest.mark.parametrize("services, change, text", [
    ({"api": service(healthy=False)}, None, "has the label and no healthcheck"),
    ({"api": service()}, lambda e: e.set_health("chat", "api", "unhealthy"), "is unhealthy"),
    ({"api": service()}, lambda e: e.die("chat", "api", 3), "is exited with exit code 3"),
], ids=["no healthcheck", "unhealthy", "exited"])
def test_a_stack_that_cannot_become_ready_is_brought_down(place, services, change, text):
    place.engine.auto_healthy = False
    place.write("chat", services, vram="1GiB")
    place.start()
    first = place.acquire("chat", wait=0)
    if change:
        place.reaches("chat", "starting")
        change(place.engine)
    over = place.acquire("chat", token=first["token"])
    assert over.status in (403, 409), over
    failed = place.reaches("chat", "failed")
    assert text in failed["why"] and not place.engine.containers and not place.daemon.leases()


def test_stacks_are_off_by_default(start_daemon):
    daemon = start_daemon("1x4GiB")
    off = daemon.cli("stack", "ls", check=None)
    assert off.returncode != 0 and "stacks are switched off" in off.stderr and "stacks.enabled = true" in off.stderr
    assert daemon.child_pid("sublet-stacks") is None
    assert "sublet_stacks" not in daemon.get("/metrics").body
