# SPDX-License-Identifier: Apache-2.0
"""Scenarios of stacks, for tests that interrupt the daemon at each step."""
import json

from tests.support.fake_compose import FakeCompose
from tests.support.scenarios import scenario
from tests.support.sublet import wait_until


def with_a_stack(client):
    """Gives the next daemon a stack. No engine is there, and none is needed for its settings."""
    place = client.daemon.dir / "stacks"
    (place / "chat").mkdir(mode=0o700, parents=True)
    place.chmod(0o700)
    (place / "chat" / "compose.yaml").write_text(json.dumps({"services": {"api": {"image": "busybox"}}}))
    program = FakeCompose(client.daemon.dir).program
    with open(client.daemon.dir / "sublet.toml", "a") as config:
        config.write(f'[stacks]\nenabled = true\ndir = "{place}"\ncompose = "{program}"\n'
                     f'engine = "unix://{client.daemon.dir}/no-engine.sock"\n')


@scenario(stage=with_a_stack)
def stack_changed(client, _staged):
    wait_until(lambda: client.get("/v1/stacks")["stacks"], "the stack is found")
    for exclusive in (True, False):
        client.post("/v1/stacks/chat/set", {"exclusive": exclusive, "vram_bytes": 1 << 30})
    assert client.get("/v1/stacks/chat")["set"]["exclusive"] is False


def stack_answers(place, api):
    """Makes each call about stacks, so that each documented answer is given."""
    chat = "/v1/stacks/chat"
    adopted = {"path": str(place.dir / "extra")}
    assert api.post("/v1/stacks", adopted).status == 201 and api.post("/v1/stacks", adopted)["code"] == "InUse"
    assert api.post("/v1/stacks", {"path": str(place.dir / "nothing")}).status == 404
    assert api.post("/v1/stacks", {"path": "relative"}).status == 400
    assert api.get("/v1/stacks").status == api.get(chat).status == 200
    assert api.post(chat + "/release", {})["code"] == api.post(chat + "/renew", {})["code"] == "Stale"
    assert api.post(chat + "/restart", {})["code"] == "Stale"
    got = api.post(chat + "/acquire", {"wait_seconds": 60})
    assert got.status == 200 and api.get(chat + "/logs").status == 200
    assert api.post(chat + "/acquire", {})["code"] == "InUse" and api.post(chat + "/renew", {}).status == 200
    for verb in ("acquire", "renew", "restart", "release"):
        assert api.post(f"{chat}/{verb}", {}, Sublet_Lease_Token="x").status == 403
    assert api.post(chat + "/restart", {}).status == 200 and api.post(chat + "/restart", {})["code"] == "InUse"
    wait_until(lambda: api.get(chat)["state"] == "ready", "it is ready again")
    assert api.post(chat + "/pull").status == 200
    place.compose.on("pull", "fail", text="manifest unknown")
    assert api.post(chat + "/pull")["code"] == "Stale"
    assert api.post(chat + "/release", {"down": True}).status == 200
    wait_until(lambda: api.get(chat)["state"] == "down", "it is down")
    waits = api.post("/v1/stacks/extra/acquire", {})
    assert waits.status == 202, "the card is not empty"
    assert api.call("DELETE", "/v1/stacks/extra")["code"] == "InUse"
    assert api.post("/v1/stacks/extra/release", {}).status == 200
    assert api.post("/v1/stacks/extra/acquire", {"queue": False})["code"] == "Memory"
    assert api.call("DELETE", "/v1/stacks/extra").status == 200
    assert api.post(chat + "/set", {"vram_bytes": 1 << 60}).status == 200
    assert api.post(chat + "/acquire", {}).status == 422
    assert api.post(chat + "/set", {"tier": "x"}).status == api.post(chat + "/set", {"vram_bytes": 1}).status == 400
    for path in ("", "/logs"):
        assert api.get("/v1/stacks/none" + path).status == 404
    assert api.get(chat + "?wait=x").status == api.get(chat + "/logs?lines=x").status == 400
    for verb in ("set", "acquire", "renew", "restart", "pull", "release"):
        assert api.post(f"/v1/stacks/none/{verb}", {}).status == 404
        assert api.post(f"{chat}/{verb}", {"no such field": 1}).status == 400
    assert api.call("DELETE", "/v1/stacks/none").status == 404 and api.call("DELETE", chat).status == 400
