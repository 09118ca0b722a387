# SPDX-License-Identifier: Apache-2.0
"""`sublet web` for tests: its address, and a client that does what a browser does with it."""
import gzip
import http.client
import json
import re
import urllib.parse

from .sublet import ROOT

WEB = ROOT / "web"


class Answer:
    def __init__(self, raw):
        self.status, self.headers = raw.status, raw.headers
        data = raw.read()
        self.sent_bytes = len(data)
        self.text = gzip.decompress(data).decode() if raw.headers.get("Content-Encoding") == "gzip" else data.decode()

    @property
    def body(self):
        return json.loads(self.text)

    def __getitem__(self, key):
        return self.body[key]


def call(port, method, target, body=None, **headers):
    """Sends one request; `_` in a header's name stands for `-`. Host may be replaced."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else body if isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, target, data, named)
        return Answer(connection.getresponse())
    finally:
        connection.close()


class Web:
    """A running `sublet web`. `enter()` does what the page does with the address."""

    def __init__(self, daemon, *arguments, **options):
        self.process = daemon.spawn("sublet", "web", "--no-open", *arguments, **options)
        self.address = self.process.stdout.readline().strip()
        parts = urllib.parse.urlsplit(self.address)
        assert parts.hostname == "127.0.0.1" and parts.path == "/" and not parts.query, self.address
        self.port = parts.port
        self.secret = re.fullmatch("secret=([0-9a-f]{32})", parts.fragment).group(1)
        self.pass_headers = {}

    def call(self, method, target, body=None, **headers):
        return call(self.port, method, target, body, **{**self.pass_headers, **headers})

    def get(self, target, **headers):
        return self.call("GET", target, **headers)

    def enter(self):
        answer = self.call("POST", "/web/session", {"secret": self.secret})
        assert answer.status == 200, answer.text
        cookie = answer.headers["Set-Cookie"].split(";")[0]
        self.pass_headers = {"Cookie": cookie, "Authorization": f"Bearer {answer['key']}"}
        return answer
