# SPDX-License-Identifier: Apache-2.0
"""The API over TCP: a free port, and a client with an access token. Replies are checked against the contract."""
import http.client
import socket

from .sublet import Api


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_with_tcp(start_daemon, config=""):
    """Starts a daemon with `config` that also listens on a free TCP port, its `.port`."""
    port = free_port()
    daemon = start_daemon(config=config + f'[api]\ntcp = "127.0.0.1:{port}"\n')
    daemon.port = port
    return daemon


class TcpApi(Api):
    def __init__(self, port, token=None, timeout=120):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        self.token = token

    def call(self, method, path, body=None, **headers):
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        return super().call(method, path, body, **headers)
