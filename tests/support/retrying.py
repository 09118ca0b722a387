# SPDX-License-Identifier: Apache-2.0
"""A client that repeats its calls across crashes of the daemon, and checks afterwards every promise that it got."""
import http.client
import http.server
import itertools
import json
import os
import signal
import threading

from tests.support.sublet import GIB, name_of, wait_until

REPEATED = 30  # the check repeats at least this number of answered calls, at most twice as many


class Retrying:
    """A client that behaves as clients should: it repeats a call with the same key until it gets an answer."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.api = None     # a connection, once the daemon was started
        self.keys = itertools.count(1)
        self.answers = []   # (method, path, body, key, reply) of all acknowledged calls
        self.restarts = 0   # starts after a kill
        self.failures = 0   # failures of the store that this client saw
        self.runs = 0       # programs started by `sublet run`
        self.programs = set()  # tags of supervised programs, whose keepers ask for leases themselves
        self.cards_known = True
        self.hooks = []

    def close(self):
        for hook in self.hooks:
            hook.close()

    def revive(self):
        """Starts the daemon again if it was killed."""
        if self.daemon.process.poll() is None:
            return
        assert self.daemon.process.returncode == -signal.SIGKILL, self.daemon.log()
        self.restarts += 1
        self.daemon.start(wait_for_cards=self.cards_known)
        self.api = self.daemon.api()

    def disturbed(self):
        """Tells whether the daemon was interrupted already."""
        return self.restarts or "the store failed" in self.daemon.log()

    def call(self, method, path, body=None, **headers):
        def attempt():
            try:
                reply = self.api.call(method, path, body, **headers)
            except (OSError, http.client.HTTPException):
                self.daemon.process.wait(60)
                self.revive()
                return None
            if reply.status == 503:
                self.failures += 1
                return None
            return reply
        return wait_until(attempt, f"an answer to {method} {path}")

    def start(self, *arguments):
        self.daemon.start(expect_ready=False, extra=arguments)
        wait_until(lambda: self.daemon.process.poll() is not None or self.serves(), "the daemon serves")
        self.revive()
        self.api = self.daemon.api()

    def serves(self):
        try:
            return self.daemon.get("/v1/devices")["devices"] or not self.cards_known
        except (OSError, http.client.HTTPException):
            return False

    def ended(self, keeper):
        """Returns the exit status of `sublet run`, which outlives the daemon."""
        def poll():
            self.revive()
            return keeper.poll() is not None
        wait_until(poll, "the program ends")
        return keeper.returncode

    def get(self, path):
        return self.call("GET", path)

    def post(self, path, body=None, method="POST"):
        key = f"key-{next(self.keys)}"
        reply = self.call(method, path, body, Idempotency_Key=key)
        if path == "/v1/programs":
            self.programs.add(body["tag"])
        if path == "/v1/sessions" and reply.status < 400:
            self.programs.add(reply["id"])
        if reply.status < 400:  # a refusal changes nothing, and is decided anew each time
            self.answers.append((method, path, body, key, reply))
        return reply

    def delete(self, path):
        return self.post(path, method="DELETE")

    def ask(self, size=1, **more):
        """Requests a lease, waits until it is granted, and claims it if it had to wait."""
        lease = self.post("/v1/leases", {"vram_bytes": size * GIB, "ttl_seconds": 600, "wait_seconds": 60, **more})
        if lease["state"] == "offered":
            self.act(lease["id"], "claim", {})
        return lease["id"]

    def queue(self, size=1, **more):
        return self.ask(size, wait_seconds=0, **more)

    def act(self, id, call, body=None):
        return self.post(f"/v1/leases/{id}/{call}", body)

    def until(self, id, condition):
        def look():
            usable = [device for device in self.get("/v1/devices")["devices"] if device["state"] == "ok"]
            # cards in other states may be unread
            self.nothing_is_promised_twice(self.get("/v1/leases")["leases"], usable)
            lease = self.get(f"/v1/leases/{id}")
            return lease if condition(lease.body) else None
        return wait_until(look, f"{id} as expected")

    def nothing_is_promised_twice(self, leases, devices):
        reserved = sum(lease["reserved_bytes"] for lease in leases)
        for device in devices:
            if device["total_bytes"] == 0:
                continue  # a daemon that has just started has not read it yet
            assert reserved <= device["total_bytes"] - device["driver_reserved_bytes"], "VRAM is promised twice"

    def says(self, id, code, text):
        """Waits until the lease has a reason with that code and text."""
        def look():
            reasons = self.get(f"/v1/leases/{id}/why")["reasons"]
            return any(reason["code"] == code and text in reason["text"] for reason in reasons)
        wait_until(look, f"{id}: {code}: {text}")

    def hooked(self, size=1, **more):
        """Returns a cooperative lease with a webhook, and its Hook."""
        lease = self.ask(size, **more)
        return lease, self.hook(lease)

    def hook(self, lease):
        """Registers the lease with a webhook."""
        hook = Hook()
        self.hooks.append(hook)
        self.act(lease, "cooperate", {"way": "webhook", "url": hook.url})
        return hook

    def pause(self, id):
        """Pauses the lease; repeats this if a crash in between has undone the pause."""
        def paused():
            self.act(id, "pause")
            now = self.until(id, lambda lease: lease["state"] in ("active", "paused", "ended"))
            return now if now["state"] != "active" else None
        return wait_until(paused, f"{id} is paused")

    def holds_again(self, id):
        """Makes the program allocate again (`--on-pause again-at-usr1`), after the daemon has seen the yield."""
        paused = self.until(id, lambda lease: lease["state"] == "paused")
        if paused["pause"]["method"] == "cooperative":
            os.kill(paused["owner"]["pid"], signal.SIGUSR1)

    def resume(self, id):
        self.act(id, "resume")
        return self.until(id, lambda lease: lease["state"] == "active")

    def ends(self, id, reason):
        assert self.until(id, lambda lease: lease["state"] == "ended")["end_reason"] == reason

    def run(self, *command):
        """Starts a program by `sublet run`; returns its keeper and its lease once the program runs and owns the lease.
        """
        keeper = self.daemon.spawn("sublet", "run", "--vram", "1GiB", "--", *command)
        self.runs += 1

        def owned():
            for lease in self.get("/v1/leases?all=true")["leases"]:
                if lease["owner"]["pid"] and name_of(lease["owner"]["pid"]) != "sublet":  # the keeper still holds it
                    return lease
            return None
        return keeper, wait_until(owned, "the program runs")

    def check(self):
        """Checks the rules that always hold: no acknowledged call is lost, doubled, or answered differently."""
        asked = [reply["id"] for _, path, _, _, reply in self.answers if path == "/v1/leases"]
        assert len(set(asked)) == len(asked)
        leases = self.get("/v1/leases?all=true")["leases"]
        for tag in self.programs:
            assert sum(lease["tag"] == tag and lease["state"] != "ended" for lease in leases) <= 1, f"{tag} runs twice"
        ids = [lease["id"] for lease in leases if lease["tag"] not in self.programs]
        assert len(set(ids)) == len(ids) == len(asked) + self.runs, "a lease is lost or doubled"
        assert set(asked) <= set(ids)
        step = max(1, len(self.answers) // REPEATED)
        for method, path, body, key, reply in self.answers[::-step]:
            again = self.call(method, path, body, Idempotency_Key=key)
            if path == "/v1/leases":  # its later state is reported anew
                assert (again["id"], again["token"]) == (reply["id"], reply["token"]), "a retry made another lease"
            else:
                assert (again.status, again.body) == (reply.status, reply.body), "a retry got another answer"
        self.nothing_is_promised_twice(leases, self.get("/v1/devices")["devices"])


class Hook:
    """A program without VRAM that yields when its webhook is called; orders in `refuses` fail."""

    def __init__(self):
        self.refuses = set()
        self.may_answer = threading.Event()
        self.may_answer.set()
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["order"]
                hook.may_answer.wait(60)
                answer = {"answer": {"yield": "yielded", "resume": "resumed"}[order]}
                self.respond(500 if order in hook.refuses else 200, json.dumps(answer).encode())

            def respond(self, status, body):
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the caller has been killed

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.may_answer.set()
        self.server.shutdown()
        self.server.server_close()
