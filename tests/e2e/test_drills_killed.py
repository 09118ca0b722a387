# SPDX-License-Identifier: Apache-2.0
"""Each drill, with the daemon killed at what it reaches on the way: whatever the moment, all ends as it should.

Here a drill is killed at the transitions that matter to it, at one step of each, turn and turn about; with
SUBLET_DRILL_STEPS=all at every step of every transition that it reaches by itself, the first time and the last.
"""
import concurrent.futures
import os
import traceback
from collections import Counter

import pytest

from tests.support import more_drills  # noqa: F401 - it registers its drills
from tests.support.drills import DRILLS, reached

EVERYWHERE = os.environ.get("SUBLET_DRILL_STEPS") == "all"
AT_ONCE = 20
# Nothing of it is stored; it is, and nobody acts on it yet; it is acted on, and nobody may have heard of that.
STEPS = ("written", "committed", "done")


def play(name, failpoint="log"):
    """Plays the drill, interrupted there. What went wrong, or None; what it reached before it began, and in all."""
    stage = None
    try:
        stage = DRILLS[name].stage()
        stage.start("--failpoint", failpoint)
        DRILLS[name].play(stage)
        stage.is_over()
        assert failpoint == "log" or stage.restarts == 1, "the daemon was never killed"
        return None, stage.before, reached(stage.daemon.log())
    except Exception:  # noqa: BLE001 - one of many threads; the test reports them all
        log = "" if stage is None else stage.daemon.log()
        return f"--- {name}, {failpoint}\n{traceback.format_exc()}\n{log}", None, None
    finally:
        if stage is not None:
            stage.close()
            stage.daemon.close()


def points(drill, before, reached):
    """Where it is to be killed, by what it reached undisturbed."""
    turn = list(DRILLS.values()).index(drill)
    chosen = {(subject, STEPS[(turn + n) % len(STEPS)]) for n, subject in enumerate(drill.matter)}
    first = Counter(before)
    total, times, previous = Counter(reached), Counter(before), ""
    for name in reached[len(before):]:
        times[name] += 1
        subject, step = name.split(".")
        if EVERYWHERE:
            # What is decided together reaches each step together, which is one moment.
            wanted = step != previous and times[name] in (first[name] + 1, total[name])
        else:
            wanted = (subject, step) in chosen and times[name] == first[name] + 1
        if wanted:
            yield f"{name}=kill@{times[name]}"
        previous = step


@pytest.fixture(scope="module")
def played(request):
    """What comes of each of the chosen drills, alone and killed anywhere: all at once, for they mostly wait."""
    chosen = [item.callspec.params["name"] for item in request.session.items
              if item.path == request.path and hasattr(item, "callspec")]
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    alone = {name: pool.submit(play, name) for name in chosen}
    killed = {}
    for name, future in alone.items():
        # One that cannot be staged here skips, which is an exception that its own test meets.
        problem, *seen = (True,) if future.exception() else future.result()
        killed[name] = [] if problem else [pool.submit(play, name, point) for point in points(DRILLS[name], *seen)]
    yield {name: [alone[name], *killed[name]] for name in chosen}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", DRILLS)
def test_killed_on_the_way(played, name):
    problems = [problem for future in played[name] if (problem := future.result()[0])]
    assert not problems, "\n".join(problems)
    _, before, reached = played[name][0].result()
    subjects = {name.split(".")[0] for name in reached[len(before):]}
    assert subjects >= set(DRILLS[name].matter), f"never reached: {set(DRILLS[name].matter) - subjects}"
