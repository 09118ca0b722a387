# SPDX-License-Identifier: Apache-2.0
"""Agents of cluster engines: leases on behalf of users, which belong to control groups."""
import json
import subprocess

import pytest

from tests.support.groups import Groups
from tests.support.sublet import GIB, wait_until
from tests.support.system import ADMINS, CAROL, DAVE, GROUP, System

AGENTS = 64912  # a group
CONFIG = '[lease]\nlinger = "1s"\n[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
POST = """
import http.client, json, socket, sys
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
asked = Connection("localhost")
asked.request("POST", sys.argv[2], sys.argv[3])
answer = asked.getresponse()
print(json.dumps([answer.status, json.loads(answer.read())]))
"""


@pytest.fixture(params=["v2", "v1"])
def groups(request):
    made = Groups(request.param)
    yield made
    made.close()


@pytest.fixture
def system():
    made = System(config='[api]\nagents = ["carol", "@agents"]\n[[tenants.user]]\nname = "dave"\ntenant = "vision"\n')
    with open(made.home / "group", "a") as accounts:
        accounts.write(f"agents:x:{AGENTS}:\n")
    made.start()
    yield made
    made.close()


def post(system, uid, body, path="/v1/leases", groups=(GROUP,)):
    done = subprocess.run(system.inside(uid, "/usr/bin/python3", "-c", POST, system.home / "run/sublet/sublet.sock",
                                        path, json.dumps(body), groups=groups), capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)


def for_group(group, gib=1, **more):
    return {"vram_bytes": gib * GIB, "owner": {"cgroup": str(group)}, "consumer": "job", **more}


def asleep(daemon, groups, group, *command):
    child = daemon.spawn(*(command or ("sleep", "600")))
    groups.move(child.pid, group)
    return child


def test_agents_alone_ask_on_behalf_of_others(system):
    mine = {"vram_bytes": GIB // 4, "ttl_seconds": 600}
    for_dave = dict(mine, on_behalf={"user": "dave"})
    status, lease = post(system, CAROL, for_dave)
    assert (status, lease["user"], lease["uid"], lease["tenant"]) == (201, "dave", DAVE, "vision"), lease
    for uid, who in ((CAROL, {"user": DAVE, "tenant": "physics"}), (0, {"user": "dave", "tenant": "physics"})):
        status, lease = post(system, uid, dict(mine, on_behalf=who))
        assert (status, lease["user"], lease["tenant"]) == (201, "dave", "physics"), lease
    assert post(system, DAVE, dict(mine, on_behalf={"user": "carol"}), groups=(GROUP, AGENTS))[0] == 201
    assert post(system, DAVE, dict(mine, on_behalf={"user": "carol"}), groups=(GROUP, ADMINS))[0] == 201
    for body in (dict(mine, on_behalf={"user": "carol"}), dict(mine, on_behalf={"user": "dave"}),
                 for_group("/sys/fs/cgroup/anything"), dict(mine, tenant="physics")):
        status, refused = post(system, DAVE, body)
        assert status == 403 and refused["hint"], (body, refused)
    for who in ({"user": "nobody-here"}, {}, {"user": -1}, {"user": True}, {"user": "dave", "more": 1}):
        status, refused = post(system, CAROL, dict(mine, on_behalf=who))
        assert status == 400, (who, refused)


def test_a_user_of_a_group_lease_may_not_enlarge_it(system, groups):
    group = groups.make("job_7")
    child = system.begin(0, "hold", "--vram", "64MiB")  # any process
    groups.move(child.pid, group)
    status, lease = post(system, CAROL, for_group(group, on_behalf={"user": "dave"}))
    assert (status, lease["state"], lease["user"]) == (201, "active", "dave"), lease
    path = f"/v1/leases/{lease['id']}"
    assert post(system, DAVE, {"vram_bytes": 2 * GIB}, path + "/resize")[0] == 403
    assert post(system, CAROL, for_group(group, on_behalf={"user": "carol"}))[0] == 409, "it is dave's group"


def test_a_lease_lives_as_long_as_its_group_has_processes(start_daemon, groups):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    api, group = daemon.api(), groups.make("job_7/step_0")
    child = asleep(daemon, groups, group)
    lease = api.post("/v1/leases", for_group(group.parent))
    assert (lease.status, lease["state"]) == (201, "active"), lease
    assert lease["owner"]["kind"] == "group" and lease["owner"]["cgroup"] == str(group.parent), lease
    again = api.post("/v1/leases", for_group(group.parent, gib=3))
    assert (again.status, again["id"], again["vram_bytes"]) == (200, lease["id"], GIB), "a group has one lease"
    for other in (group, groups.top):
        assert api.post("/v1/leases", for_group(other)).status == 409, "no lease inside of the other"
    groups.move(asleep(daemon, groups, groups.top).pid, group)
    child.kill()
    child.wait()
    daemon.restart()
    api = daemon.api()
    assert api.lease(lease["id"])["state"] == "active", "another process of the group lives"
    groups.remove(group.parent)
    ended = wait_until(lambda: (now := api.lease(lease["id"]))["state"] == "ended" and now, "the lease ends")
    assert ended["end_reason"] == "released", ended


def test_a_group_whose_earlier_lease_is_not_settled_gets_no_other(start_daemon, groups):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    api, group = daemon.api(), groups.make("job_7")
    asleep(daemon, groups, group)
    first = api.post("/v1/leases", for_group(group, gib=2))
    load = daemon.spawn("sh", "-c", f"echo $$ > {group}/cgroup.procs; exec simgpu-load --alloc 1GiB --seconds 600")
    wait_until(lambda: api.lease(first["id"])["used_bytes"] > GIB, "its program uses the card")
    assert api.post(f"/v1/leases/{first['id']}/release", {"force": True}).status == 200
    refused = api.post("/v1/leases", for_group(group, gib=2))
    assert refused.status == 409 and first["id"] in refused["detail"] and first["id"] in refused["hint"], refused
    assert api.post("/v1/leases", for_group(groups.top, gib=2)).status == 409, "nor a group around it"
    load.kill()
    load.wait()
    wait_until(lambda: api.post("/v1/leases", for_group(group, gib=2)).status == 201, "it is settled")
    assert sum(lease["vram_bytes"] for lease in api.get("/v1/leases")["leases"]) == 2 * GIB


def test_a_group_that_cannot_be_read_keeps_its_members(start_daemon, groups):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    api, group = daemon.api(), groups.make("job_9")
    lease = api.post("/v1/leases", for_group(group, gib=2))
    daemon.spawn("sh", "-c", f"echo $$ > {group}/cgroup.procs; exec simgpu-load --alloc 1GiB --seconds 600")
    wait_until(lambda: api.lease(lease["id"])["used_bytes"] > GIB, "its program uses the card")
    groups.make("job_9/" + "/".join("d" * 40))  # deeper than the daemon walks
    asleep(daemon, groups, groups.make("job_10"))
    assert api.post("/v1/leases", for_group(groups.top / "job_10")).status == 201, "the process table is read again"
    for _ in range(5):
        assert api.lease(lease["id"])["used_bytes"] > GIB
        assert api.get("/v1/status")["unleased_processes"] == []


def test_a_lease_may_come_before_its_processes_and_waits_without_a_connection(start_daemon, groups):
    daemon = start_daemon("1x4GiB", config=CONFIG + '[queue]\nclaim_window = "2s"\n')
    api = daemon.api()
    with_process = asleep(daemon, groups, groups.make("job_1"))
    first = api.post("/v1/leases", for_group(groups.top / "job_1", gib=3))
    waits = api.post("/v1/leases", for_group(groups.top / "job_2", gib=3))
    early = api.post("/v1/leases", dict(for_group(groups.top / "job_3"), vram_bytes=GIB // 4))
    assert (first["state"], waits["state"]) == ("active", "queued")
    api.close()
    group = groups.make("job_2")
    asleep(daemon, groups, group)
    api = daemon.api()
    wait_until(lambda: api.lease(early["id"])["end_reason"] == "unclaimed", "nobody came to the third group")
    with_process.kill()
    with_process.wait()
    wait_until(lambda: api.lease(waits["id"])["state"] == "active", "the second group has its memory, without a claim")


def test_the_memory_of_a_group_is_its_leases_and_is_parked_with_it(start_daemon, groups):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    api, group = daemon.api(), groups.make("job_9")
    holder = asleep(daemon, groups, group)
    lease = api.post("/v1/leases", for_group(group, gib=2))
    load = daemon.spawn("sh", "-c", f"echo $$ > {group}/cgroup.procs; "
                        "exec simgpu-load --alloc 1GiB --seconds 600 --verify")
    wait_until(lambda: api.lease(lease["id"])["used_bytes"] > GIB, "its bytes are the lease's")
    assert api.get("/v1/status")["unleased_processes"] == []
    urgent = api.post("/v1/leases", {"vram_bytes": 3 * GIB, "tier": "interactive", "owner": {"connection": True}})
    wait_until(lambda: api.lease(lease["id"])["state"] == "paused", "the group is parked")
    assert load.poll() is None and holder.poll() is None
    api.post(f"/v1/leases/{urgent['id']}/release", {"force": True})
    wait_until(lambda: api.lease(lease["id"])["state"] == "active", "the group runs again")
    pinned = groups.make("job_10")
    asleep(daemon, groups, pinned)
    kept = api.post("/v1/leases", for_group(pinned, pausable="no"))
    assert api.post(f"/v1/leases/{kept['id']}/pause", {}).status == 409
    groups.remove(group)
    wait_until(lambda: api.lease(lease["id"])["state"] == "ended", "the lease ends with its group")


def test_an_owner_that_is_no_group_is_refused(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    api = daemon.api()
    for path in ("", "relative", "/", "/tmp", "/sys/fs/cgroup/../cgroup/x", "/" + "x" * 5000, "/proc/self"):
        assert api.post("/v1/leases", for_group(path)).status == 400, path
    both = for_group("/sys/fs/cgroup/x")
    both["owner"]["connection"] = True
    assert api.post("/v1/leases", both).status == 400
    assert api.get("/v1/leases")["leases"] == []


def test_a_group_whose_memory_limit_cannot_hold_its_parked_bytes_is_not_paused(start_daemon):
    groups, limited = Groups("v1"), Groups("memory")
    try:
        daemon = start_daemon("1x4GiB", config=CONFIG)
        api, group, small = daemon.api(), groups.make("job_9"), limited.make("job_9")
        (small / "memory.limit_in_bytes").write_text(str(GIB // 2))
        asleep(daemon, groups, group)
        lease = api.post("/v1/leases", for_group(group, gib=2))
        load = daemon.spawn("sh", "-c", f"echo $$ > {group}/cgroup.procs; echo $$ > {small}/cgroup.procs; "
                            "exec simgpu-load --alloc 1GiB --seconds 600")
        wait_until(lambda: api.lease(lease["id"])["used_bytes"] > GIB, "its bytes are the lease's")
        paused = api.post(f"/v1/leases/{lease['id']}/pause", {"wait_seconds": 60})
        assert paused.status == 409 and "control group" in paused["detail"], paused
        assert api.lease(lease["id"])["state"] == "active"
        assert load.poll() is None, "the kernel did not end it"
    finally:
        limited.close()
        groups.close()
