# SPDX-License-Identifier: Apache-2.0
"""Each drill, with the daemon killed at the transitions that the drill reaches: the drill must succeed every time.

./dev test kills the daemon at one transition that matters to the drill, ./dev test heavy at each of them. Both take one
step of each transition, in rotation. With SUBLET_DRILL_STEPS=all the daemon is killed at every step of every
transition, the first time and the last.
"""
import concurrent.futures
import dataclasses
import os
import traceback
from collections import Counter

import pytest

from tests.support import more_drills  # noqa: F401 - it registers its drills
from tests.support.drills import DRILLS, reached

EVERYWHERE = os.environ.get("SUBLET_DRILL_STEPS") == "all"
AT_ONCE = 20
# Not stored yet; stored, but not acted on; acted on, but perhaps not reported.
STEPS = ("written", "committed", "done")
AT_ALL = "test_killed_at_all_that_matters"


@dataclasses.dataclass
class Played:
    problem: str | None
    before: list = ()   # the failpoints reached before the drill began
    reached: list = ()  # all failpoints reached
    killed: bool = False


def play(name, failpoint="log", surely=False):
    """Plays the drill, interrupted at that point. `surely`: the drill reaches the point each time."""
    stage = None
    try:
        stage = DRILLS[name].stage()
        stage.start("--failpoint", failpoint)
        DRILLS[name].play(stage)
        stage.is_over()
        assert stage.restarts == 1 or not surely, "the daemon was never killed"
        return Played(None, stage.before, reached(stage.daemon.log()), stage.restarts == 1)
    except Exception:  # noqa: BLE001 - one of many threads; the test reports them all
        log = "" if stage is None else stage.daemon.log()
        return Played(f"--- {name}, {failpoint}\n{traceback.format_exc()}\n{log}")
    finally:
        if stage is not None:
            stage.close()
            stage.daemon.close()


def points(drill, at_all, before, reached):
    """Yields the points to kill at, from the failpoints of an undisturbed run, and whether the drill reaches each every
    time.
    """
    turn = list(DRILLS.values()).index(drill)
    chosen = {(subject, STEPS[(turn + n) % len(STEPS)]) for n, subject in enumerate(drill.matter)
              if at_all or n == turn % len(drill.matter)}
    first = Counter(before)
    total, times, previous, taken = Counter(reached), Counter(before), "", False
    for name in reached[len(before):]:
        times[name] += 1
        subject, step = name.split(".")
        is_first = times[name] == first[name] + 1
        if EVERYWHERE:
            # Decisions of one commit reach each step together, which is one point.
            taken = taken and step == previous
            wanted = not taken and (is_first or times[name] == total[name])
        else:
            wanted = (subject, step) in chosen and is_first
        if wanted:
            yield f"{name}=kill@{times[name]}", subject in drill.matter and is_first
        taken, previous = taken or wanted, step


@pytest.fixture(scope="module")
def played(request):
    """Plays each chosen drill, alone and killed at each point. All run at once, because they mostly wait."""
    chosen = [(item.originalname == AT_ALL, item.callspec.params["name"]) for item in request.session.items
              if item.path == request.path and hasattr(item, "callspec")]
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    alone = {each: pool.submit(play, each[1]) for each in chosen}
    killed = {}
    for (at_all, name), future in alone.items():
        # A drill that this machine cannot stage raises a skip, which its own test reports.
        undisturbed = None if future.exception() else future.result()
        found = points(DRILLS[name], at_all, undisturbed.before, undisturbed.reached) if undisturbed else []
        killed[at_all, name] = [pool.submit(play, name, *point) for point in found]
    yield {each: [alone[each], *killed[each]] for each in chosen}
    pool.shutdown(cancel_futures=True)


def assert_all_well(name, futures):
    alone, *others = [future.result() for future in futures]
    assert not alone.problem, alone.problem
    subjects = {reached.split(".")[0] for reached in alone.reached[len(alone.before):]}
    assert subjects >= set(DRILLS[name].matter), f"never reached: {set(DRILLS[name].matter) - subjects}"
    problems = [other.problem for other in others if other.problem]
    assert not problems, "\n".join(problems)
    # Some points are not reached each time: two simultaneous facts are decided together, or one by one.
    assert sum(other.killed for other in others) > 0.7 * len(others)


@pytest.mark.matrix
@pytest.mark.parametrize("name", DRILLS)
def test_killed_on_the_way(played, name):
    assert_all_well(name, played[False, name])


@pytest.mark.heavy
@pytest.mark.parametrize("name", DRILLS)
def test_killed_at_all_that_matters(played, name):
    assert_all_well(name, played[True, name])
