# SPDX-License-Identifier: Apache-2.0
"""Long lists come in pages from the API, and the command line joins them."""
import pytest

from tests.support.sublet import GIB, MIB

ASK = {"vram_bytes": GIB, "ttl_seconds": 600}


def pages(api, path, name):
    """Returns all rows, page by page, and the number of pages."""
    rows, after, count = [], "", 0
    while True:
        page = api.get(f"{path}{'&' if '?' in path else '?'}limit=3{after}")
        assert len(page[name]) <= 3
        rows += [lease["id"] for lease in page[name]]
        count += 1
        if page["next"] is None:
            return rows, count
        after = "&after=" + page["next"]


@pytest.fixture
def crowd(daemon):
    """Five ended leases, one that holds the card and seven that wait."""
    api = daemon.api()
    ended = [api.post("/v1/leases", ASK)["id"] for _ in range(3)]
    for lease in ended:
        api.post(f"/v1/leases/{lease}/release", {})
    more = [api.post("/v1/leases", ASK)["id"] for _ in range(2)]
    for lease in more:
        api.post(f"/v1/leases/{lease}/release", {})
    live = [api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB + 512 * MIB, priority=n))["id"] for n in range(8)]
    return daemon, api, (ended + more)[::-1], live


def test_leases_by_id_then_the_ended_ones_newest_first(crowd):
    _, api, ended, live = crowd
    assert pages(api, "/v1/leases", "leases") == (live, 3)
    assert pages(api, "/v1/leases?all=true", "leases") == (live + ended, 5)
    whole = api.get("/v1/leases?all=true")
    assert [lease["id"] for lease in whole["leases"]] == live + ended and whole["next"] is None


def test_a_lease_that_ends_between_two_pages_is_not_listed_twice(crowd):
    _, api, _, live = crowd
    page = api.get("/v1/leases?all=true&limit=4")
    api.post(f"/v1/leases/{live[6]}/release", {})
    rest = api.get(f"/v1/leases?all=true&after={page['next']}")
    ids = [lease["id"] for lease in page["leases"] + rest["leases"]]
    assert len(ids) == len(set(ids)) == 13 and live[6] in ids


def test_the_queue_in_order(crowd):
    _, api, _, live = crowd
    order, count = pages(api, "/v1/queue", "queue")
    assert (order, count) == (live[:0:-1], 3)  # the highest priority first
    assert [lease["queue"]["place"] for lease in api.get("/v1/queue?after=place-2")["queue"]] == [3, 4, 5, 6, 7]
    assert api.get("/v1/queue?after=place-99")["queue"] == []


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "after=x", "after=ended-1"])
def test_a_wrong_page_is_refused(shared_daemon, query):
    for path in ("/v1/leases", "/v1/leases?all=true", "/v1/queue"):
        refused = shared_daemon.api().get(f"{path}{'&' if '?' in path else '?'}{query}")
        assert refused.status == 400 and query.split("=")[0] in refused["detail"]


def test_the_command_line_puts_pages_together(start_daemon):
    daemon = start_daemon(config="[limits]\nleases = 3000\n")
    api = daemon.api()
    for _ in range(1203):
        assert api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB)).status in (201, 202)
    whole = daemon.json("ps")
    assert len({lease["id"] for lease in whole["leases"]}) == 1203 and whole["next"] is None
    assert len(daemon.json("queue")["queue"]) == 1202
    assert daemon.cli("ps", "--no-header", check=0).stdout.count("\n") == 1203
