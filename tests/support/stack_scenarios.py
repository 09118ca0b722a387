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
