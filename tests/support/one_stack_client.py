# SPDX-License-Identifier: Apache-2.0
"""A caller of the compatible service, as programs for the one-stack service are written: http.client and JSON."""
import http.client
import json
import threading
import time


class OneStackClient:
    def __init__(self, port):
        self.port = port

    def call(self, method, path, body=None, **headers):
        """Returns the status and the parsed body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        text = None if body is None else body if isinstance(body, str) else json.dumps(body)
        given = {"Content-Type": "application/json"} if text is not None else {}
        given.update({name.replace("_", "-"): value for name, value in headers.items()})
        try:
            connection.request(method, path, text, given)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def status(self):
        status, body = self.call("GET", "/status")
        assert status == 200
        return body

    def acquire(self, target, **fields):
        return self.call("POST", "/acquire", {"target": target, **fields})

    def release(self, token="", **fields):
        return self.call("POST", "/release", {"lease_token": token, **fields})

    def work(self, target, owner, deadline, while_held):
        """Enters the queue, asks until it has the slot, calls `while_held`, releases; returns how often it asked."""
        token, asked = "", 0
        while True:
            assert time.monotonic() < deadline, f"{owner} was never served"
            body = {"owner": owner, "lease_ttl_s": 60, "wait_s": 30}
            status, answer = self.acquire(target, **body, **({"lease_token": token} if token else {"priority": 0}))
            asked += 1
            if status == 200 and not answer.get("queued"):
                break
            assert status in (200, 409), answer
            token = answer.get("lease_token", token)
            # The peer's callers poll; a condition to wait for is what /status shows of the queue.
            while (queue := self.status()["state"]["queue"]) and queue[0]["owner"] != owner:
                assert time.monotonic() < deadline, f"{owner} was never served"
                threading.Event().wait(0.02)
        while_held()
        status, answer = self.release(answer["lease_token"])
        assert status == 200, answer
        return asked
