#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions: how long opening one takes, and how much of a core renewals take.

The raw measure of an open is a lease by POST /v1/leases on the same connection: a session is such a lease and a record.
The raw measure of renewals is a run with the same touches in which no session is renewed, since its time to live is
long. The difference is the cost of the renewals. Its share is that of a time to live of five minutes. The arguments are
the number of opens, of sessions, and the seconds of each run.
"""
import datetime
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.support.sublet import MIB, Daemon  # noqa: E402

OPENS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
SESSIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 20
SHORT, LONG = 10, 3600  # seconds to live
INTERVAL = 0.7          # part of the time to live between two renewals, on average
SHARED = 300            # seconds to live for which the share is told
CONFIG = '[gpu]\ninterval_idle = "5s"\n[limits]\nsessions = 10000\nleases = 10000\n'


def processor_time(daemon):
    tasks = pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def timed(call):
    began = time.perf_counter()
    reply = call()
    assert reply.status == 201, reply
    return (time.perf_counter() - began) * 1e3, reply["id"]


def opens(daemon):
    """Returns the median milliseconds of a lease and of a session, in turn."""
    api, leases, sessions = daemon.api(), [], []
    for _ in range(OPENS):
        took, name = timed(lambda: api.post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 3600}))
        leases.append(took)
        api.post(f"/v1/leases/{name}/release", {"force": True})
        took, name = timed(lambda: api.post("/v1/sessions", {"vram_bytes": MIB}))
        sessions.append(took)
        api.post(f"/v1/sessions/{name}/close", {"park": False})
    return statistics.median(leases), statistics.median(sessions)


def until(daemon, names):
    """Returns the sum of the ends of the times to live, in seconds."""
    rows = {row["id"]: row["expires_at"] for row in daemon.api().get("/v1/sessions")["sessions"]}
    return sum(datetime.datetime.fromisoformat(rows[name].replace("Z", "+00:00")).timestamp() for name in names)


def run(ttl):
    """Touches all sessions again and again. Returns the processor time of the daemon, and the number of renewals."""
    daemon = Daemon("1x4GiB", config=CONFIG).start()
    try:
        api = daemon.api()
        names = [api.post("/v1/sessions", {"vram_bytes": MIB, "ttl_seconds": ttl})["id"] for _ in range(SESSIONS)]
        ends, before, began = until(daemon, names), processor_time(daemon), time.perf_counter()
        for turn in range(max(int(SECONDS / (SHORT / 4)), 1)):
            for name in names:
                assert api.post(f"/v1/sessions/{name}/touch", {}).status == 200
            time.sleep(max(began + (turn + 1) * SHORT / 4 - time.perf_counter(), 0))
        used = processor_time(daemon) - before
        return used, (until(daemon, names) - ends) / (INTERVAL * ttl)
    finally:
        daemon.close()


def main():
    daemon = Daemon("1x4GiB", config=CONFIG).start()
    try:
        lease, session = opens(daemon)
    finally:
        daemon.close()
    touched, _ = run(LONG)
    renewed, renewals = run(SHORT)
    each = max(renewed - touched, 0) / max(renewals, 1)
    share = 100 * each * SESSIONS / (INTERVAL * SHARED)
    print(f"{'sessions':<46} {'value':>9} {'ratio to raw':>13}")
    print(f"{'a lease, ms (raw)':<46} {lease:>9.2f} {1:>13.2f}")
    print(f"{'a session without a command, ms':<46} {session:>9.2f} {session / lease:>13.2f}")
    print(f"{f'touches of {SESSIONS} sessions, s of a core (raw)':<46} {touched:>9.2f} {1:>13.2f}")
    print(f"{f'with {renewals:.0f} renewals, s of a core':<46} {renewed:>9.2f} {renewed / touched:>13.2f}")
    print(f"a renewal takes {each * 1e6:.0f} us; {SESSIONS} sessions of {SHARED} s take {share:.3f} % of a core")


if __name__ == "__main__":
    main()
