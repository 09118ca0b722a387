# SPDX-License-Identifier: Apache-2.0
"""Scenarios of processes without a lease, for tests that interrupt the daemon at each step."""
from tests.support.scenarios import scenario
from tests.support.sublet import wait_until


def only_verdict(client):
    """Returns the verdict, or None if there is none yet. A second one about the same process is an error."""
    rows = client.get("/v1/verdicts?all=true")["verdicts"]
    assert len(rows) <= 1, rows
    return rows[0] if rows else None


@scenario(enforcer_interval="1s")
def verdict_changed(client):
    outsider = client.daemon.spawn("simgpu-load", "--alloc", "64MiB", "--seconds", "600")
    found = wait_until(lambda: only_verdict(client), "it is found")
    assert (found["pid"], found["stage"]) == (outsider.pid, "seen")
    outsider.kill()
    outsider.wait(60)
    wait_until(lambda: (now := only_verdict(client)) and now["outcome"] == "gone", "its verdict is closed")


@scenario()
def enforcement_changed(client):
    approvals = [client.post("/v1/approvals", {"subject": f"user:{name}", "reason": "night", "ttl_seconds": 600})["id"]
                 for name in ("nobody", "daemon")]
    client.delete(f"/v1/approvals/{approvals[0]}")
    for policy in ("enforce", "warn"):  # the second replaces the first
        client.post("/v1/policies", {"subject": "user:nobody", "policy": policy})
    rules = client.get("/v1/enforcer")
    assert [(rule["id"], rule["subject"]) for rule in rules["approvals"]] == [(approvals[1], "user:daemon")]
    assert [rule["policy"] for rule in rules["policies"]] == ["warn"]
