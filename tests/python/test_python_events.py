# SPDX-License-Identifier: Apache-2.0
"""The iterator over events: order, reconnection and gaps."""
import threading

import pytest

import sublet
from tests.support.sublet import wait_until


def states(events):
    return [(event.data["lease"], event.data["state"]) for event in events if event.type == "lease"]


def test_stored_events_are_read_in_order(place):
    for _ in range(2):
        with sublet.lease("1GiB"):
            pass
    stored = list(sublet.events(since="0", follow=False))
    assert [event.type for event in stored][0] == "daemon" and all(event.id and event.at for event in stored)
    expected = [(f"lease-{number}", state) for number in (1, 2) for state in ("active", "ended")]
    assert list(dict.fromkeys(states(stored))) == expected
    later = list(sublet.events(since=stored[1].id, follow=False))
    assert later[:len(stored) - 2] == stored[2:], "more may have come meanwhile"
    only = list(sublet.events(lease="lease-2", types=["lease"], since="0", follow=False))
    assert only and {event.data["lease"] for event in only} == {"lease-2"}


def test_the_iterator_goes_on_after_a_restart(place):
    seen = []
    with sublet.events(since="0") as events:
        def read():
            for event in events:
                seen.append(event)

        reader = threading.Thread(target=read)
        reader.start()
        with sublet.lease("1GiB"):
            wait_until(lambda: ("lease-1", "active") in states(seen), "the first lease is seen")
            place.daemon.restart()
        wait_until(lambda: ("lease-1", "ended") in states(seen), "its end is seen too")
    reader.join(60)
    ids = [event.id for event in seen]
    assert len(set(ids)) == len(ids) and "gap" not in {event.type for event in seen} and events.last_id == ids[-1]
    assert [event.data["state"] for event in seen if event.type == "daemon"] == ["started", "started"]


def test_a_gap_is_reported(place):
    last = list(sublet.events(since="0", follow=False))[-1].id
    with sublet.lease("1GiB"):
        event = next(sublet.events(since=f"00000000-{last.partition('-')[2]}"))
    assert event.type == "gap" and event.id is None and event.data["text"]


def test_a_daemon_that_stays_away_ends_the_iterator(place):
    events = sublet.events(since="0", patience=0.1)
    next(events)
    place.daemon.kill()
    with pytest.raises(sublet.Disconnected):
        for _ in events:
            pass


def test_an_unknown_lease_is_refused(place):
    with pytest.raises(sublet.NotFound):
        next(sublet.events(lease="nobody"))
