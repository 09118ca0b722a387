# SPDX-License-Identifier: Apache-2.0
"""Reads the daemon's stream of events as a foreign client would: plain socket, plain text."""
import json
import socket

from . import contract


class Stream:
    """GET /v1/events; every event is checked against the contract."""

    def __init__(self, daemon, query="", last_id=None, receive_buffer=None, token=None):
        """Opens the stream over TCP with an access token."""
        self.socket = socket.socket(socket.AF_INET if token else socket.AF_UNIX, socket.SOCK_STREAM)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", daemon.port) if token else str(daemon.socket))
        header = f"Last-Event-ID: {last_id}\r\n" if last_id is not None else ""
        header += f"Authorization: Bearer {token}\r\n" if token else ""
        self.socket.sendall(f"GET /v1/events{query} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
        self.buffer = b""
        self.last_id = last_id
        self.comments = 0
        head = self._until(b"\r\n\r\n").decode()
        assert head.startswith("HTTP/1.1 200") and "text/event-stream" in head, head

    def _until(self, mark):
        while mark not in self.buffer:
            more = self.socket.recv(65536)
            if not more:
                return None
            self.buffer += more
        found, self.buffer = self.buffer.split(mark, 1)
        return found

    def next(self):
        """Returns the next event's data, or None if the stream has ended."""
        while (block := self._until(b"\n\n")) is not None:
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
            self.comments += "" in fields
            if "data" not in fields:
                self.last_id = fields.get("id", self.last_id)
                continue
            data = json.loads(fields["data"])
            assert data["type"] == fields["event"]
            contract.check_event(data)
            assert ("id" in fields) == (data["type"] not in ("gap", "reading"))
            self.last_id = fields.get("id", self.last_id)
            return data
        return None

    def sign_of_life(self):
        """Returns the id in the next comment."""
        block = self._until(b"\n\n").decode()
        assert block.startswith(": "), block
        return dict(line.split(": ", 1) for line in block.split("\n")).get("id")

    def until(self, wanted):
        """Reads up to the first event for which `wanted` is true; returns all events that were read."""
        seen = []
        while (event := self.next()) is not None:
            seen.append(event)
            if wanted(event):
                return seen
        raise AssertionError(f"the stream ended without it: {seen}")

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
