# SPDX-License-Identifier: Apache-2.0
"""Follows the lease of a worker on a thread, and tells its pauses in the log of the worker."""
from __future__ import annotations

import datetime
import threading
import time
from typing import Any, Dict, Mapping, Optional

from .._flow import path_of
from .._http import Call, Client, client_here
from .._size import format_duration
from ..errors import NotFound, SubletError
from ._job import log

LOOK_SECONDS = 30.0  # the longest time between two looks at the lease
AWAY_SECONDS = 1.0  # between two tries while the daemon does not answer
CHANGED_SECONDS = 60.0  # a return time that moves by more is told again


class Watch:
    """The state of one lease, for any thread. The thread ends with the lease, with `stop`, or with the process."""

    def __init__(self, lease: str, name: str, token: str = "", client: Optional[Client] = None,
                 look_seconds: float = LOOK_SECONDS) -> None:
        self.state = "active"
        self._lease, self._name, self._token = lease, name, token
        self._client = client or client_here()
        self._look_seconds = look_seconds
        self._stopped = False
        self._told = ""
        self._back: Optional[datetime.datetime] = None
        self._paused_at = 0.0

    def start(self) -> "Watch":
        """Starts the thread."""
        threading.Thread(target=self._run, name="sublet-watch", daemon=True).start()
        return self

    def stop(self) -> None:
        """Ends the thread after its present look, without another line."""
        self._stopped = True

    def _run(self) -> None:
        while not self._stopped and self.state != "ended":
            try:
                self._note(self._client.call(self._question()))
            except NotFound:
                break
            except (SubletError, OSError):
                time.sleep(AWAY_SECONDS)
        if self._token:
            self._client.close()  # a lease that is held by a connection

    def _question(self) -> Call:
        milliseconds = round(self._look_seconds * 1000)
        return Call("GET", path_of(self._lease, f"?wait={milliseconds}ms&since={self.state}"), lease_token=self._token,
                    answer_seconds=self._look_seconds + 30)

    def _note(self, document: Dict[str, Any]) -> None:
        before, self.state = self.state, str(document["state"])
        if self._stopped:
            return
        if self.state == "paused":
            self._tell_pause(document, before)
        elif self.state == "active" and self._told:
            log(f"{self._lease} ({self._name}) runs again after {format_duration(time.monotonic() - self._paused_at)}")
            self._told = ""
        elif self.state == "poisoned" and before != "poisoned":
            log(f"{self._lease} ({self._name}) never runs again: {document['pause']['problem']}")
        elif self.state == "ended":
            log(f"{self._lease} ({self._name}) has ended: {document['end_reason']}")

    def _tell_pause(self, document: Mapping[str, Any], before: str) -> None:
        back = moment(document["pause"]["until"])
        moved = back is not None and (self._back is None or
                                      abs((back - self._back).total_seconds()) > CHANGED_SECONDS)
        if before == "paused" and not moved:
            return
        if before != "paused":
            self._paused_at = time.monotonic()
        self._back, self._told = back, pause_text(document)
        log(f"{self._lease} ({self._name}) is {self._told}")


def moment(text: Optional[str]) -> Optional[datetime.datetime]:
    """Reads a time of the contract."""
    return None if text is None else datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def pause_text(document: Mapping[str, Any]) -> str:
    """Returns "paused for lease-7, back about 14:05" of a paused lease, in the time of this machine."""
    pause = document["pause"]
    why = f"paused for {pause['preemptor']}" if pause["preemptor"] else f"paused ({pause['reason']})"
    back = moment(pause["until"])
    return f"{why}, back about {back.astimezone():%H:%M}" if back else f"{why}, back at an unknown time"
