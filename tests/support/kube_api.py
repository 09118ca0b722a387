# SPDX-License-Identifier: Apache-2.0
"""A client of the API server: JSON over HTTPS with a token."""
import http.client
import json
import ssl

PATCH = {"merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json"}


class KubeApi:
    def __init__(self, port, token, authority):
        self.port, self.token = port, token
        self.context = ssl.create_default_context(cafile=str(authority))
        self.context.check_hostname = False

    def call(self, method, path, body=None, kind="application/json", **headers):
        """Returns the status and the answer, which is an object or a text."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Authorization": f"Bearer {self.token}", "Content-Type": kind, **headers})
            reply = connection.getresponse()
            text = reply.read().decode()
        finally:
            connection.close()
        try:
            return reply.status, json.loads(text)
        except ValueError:
            return reply.status, text

    def get(self, path):
        """Returns the object, or None if there is none."""
        status, answer = self.call("GET", path)
        assert status in (200, 404), f"GET {path}: {status} {answer}"
        return answer if status == 200 else None

    def items(self, path):
        return (self.get(path) or {}).get("items", [])

    def create(self, path, body):
        status, answer = self.call("POST", path, body)
        assert status in (200, 201, 202), f"POST {path}: {status} {answer}"
        return answer

    def patch(self, path, body, kind="merge"):
        status, answer = self.call("PATCH", path, body, PATCH[kind])
        assert status == 200, f"PATCH {path}: {status} {answer}"
        return answer

    def delete(self, path, **options):
        status, answer = self.call("DELETE", path, options or None)
        assert status in (200, 202, 404), f"DELETE {path}: {status} {answer}"
