# SPDX-License-Identifier: Apache-2.0
"""The helpers of the tests that wait for a condition, or that compute a value once."""
import threading
import types

import pytest

from tests.support import contract, sublet
from tests.support.once import once
from tests.support.sublet import wait_until


def test_a_condition_is_looked_at_after_the_limit_too(monkeypatch):
    clock = iter([0, 1, 71, 72, 142])  # each look takes 70 s, and the limit is 60 s
    monkeypatch.setattr(sublet, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    looks = iter([0, 1])
    assert wait_until(lambda: next(looks), "the second look") == 1


def test_a_failed_wait_tells_its_looks():
    with pytest.raises(AssertionError, match=r"^waited 0 s in vain for: rain \(last seen: 0; 1 looks, the longest "
                                             r"took 0\.0 s\)$"):
        wait_until(lambda: 0, "rain", timeout=0)


def test_threads_share_one_computation():
    began, calls = threading.Barrier(5), []

    @once
    def value():
        calls.append(1)
        began.wait()  # until all threads are about to ask
        return object()

    found = []

    def work(asks_first):
        if not asks_first:
            began.wait()
        found.append(value())
    threads = [threading.Thread(target=work, args=(number == 0,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and len(set(map(id, found))) == 1 and len(found) == 5


def test_an_error_is_not_kept():
    answers = iter([ValueError("not yet"), "there"])

    @once
    def value():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer
    with pytest.raises(ValueError):
        value()
    assert value() == "there"


def test_the_contract_is_parsed_before_any_test():
    assert contract.document() is contract.document() and "/v1/leases" in contract.document()["paths"]
