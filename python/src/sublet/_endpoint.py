# SPDX-License-Identifier: Apache-2.0
"""Finds the daemon by the rules of the command line. Reads the environment; any thread."""
from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import List

from .errors import BadRequest

SYSTEM_SOCKET = "/run/sublet/sublet.sock"
_HINT = "name the daemon by its socket, unix:///run/sublet/sublet.sock, or by http://127.0.0.1:PORT"


@dataclass(frozen=True)
class Endpoint:
    """The socket of a daemon, or its port on this machine."""

    path: str = ""  # absolute; "" for TCP
    host: str = ""  # TCP: 127.0.0.1 or ::1
    port: int = 0
    token: str = ""  # TCP: the access token

    @property
    def authority(self) -> str:
        """The Host header."""
        if not self.port:
            return "sublet"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The value for SUBLET_HOST."""
        return f"http://{self.authority}" if self.port else f"unix://{self.path}"


def resolve() -> Endpoint:
    """Returns the daemon of SUBLET_HOST, else the user's own daemon if its socket exists, else the system's daemon.

    Raises `BadRequest` if SUBLET_HOST names no socket and no port of this machine.
    """
    host = os.environ.get("SUBLET_HOST", "")
    if host:
        return _parse(host)
    for path in _user_sockets():
        try:
            if stat.S_ISSOCK(os.stat(path).st_mode):
                return Endpoint(path=path)
        except OSError:
            continue
    return Endpoint(path=SYSTEM_SOCKET)


def _parse(text: str) -> Endpoint:
    if text.startswith("http://"):
        return _parse_tcp(text, text[len("http://"):].rstrip("/"))
    path = text[len("unix://"):] if text.startswith("unix://") else text
    if "://" in path or not path:
        raise BadRequest(f"SUBLET_HOST is '{text}', which is neither a Unix socket nor a port of this machine", _HINT)
    return Endpoint(path=os.path.abspath(path))


def _parse_tcp(text: str, rest: str) -> Endpoint:
    host, _, port = rest.rpartition(":")
    host = {"localhost": "127.0.0.1", "[::1]": "::1"}.get(host, host)
    if host not in ("127.0.0.1", "::1") or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadRequest(f"SUBLET_HOST is '{text}', which names no port of this machine", _HINT)
    return Endpoint(host=host, port=int(port), token=_token())


def _token() -> str:
    path = os.environ.get("SUBLET_TOKEN_FILE", "")
    if not path:
        return ""
    hint = "write a token with: sublet token create --file FILE"
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(257).strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadRequest(f"cannot read SUBLET_TOKEN_FILE '{path}': {problem}", hint) from None
    if not token or len(token) > 128 or not all(" " < character < "\x7f" for character in token):
        raise BadRequest(f"the file '{path}' contains no token", hint)
    return token


def _user_sockets() -> List[str]:
    paths = []
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        paths.append(f"{runtime}/sublet/sublet.sock")
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        home = os.environ.get("HOME", "")
        state = (home if home.startswith("/") else "") + "/.local/state"
    # As `_parse` does: SUBLET_HOST must name the same endpoint.
    return [os.path.abspath(path) for path in (*paths, f"{state}/sublet/sublet.sock")]
