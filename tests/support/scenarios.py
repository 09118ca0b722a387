# SPDX-License-Identifier: Apache-2.0
"""Scenarios for leases, by the names of `subletd --list-failpoints`. A scenario plays a transition, and a test
interrupts it.
"""
import dataclasses
from collections.abc import Callable


@dataclasses.dataclass
class Scenario:
    play: Callable           # runs with a Retrying client, and with the stage's result if there is a stage
    stage: Callable | None   # runs before the start of the daemon that is interrupted
    settings: dict           # lines of its configuration


SCENARIOS = {}


def scenario(*names, stage=None, **settings):
    """Registers a function as the scenario of its own name, or of those names."""
    def register(play):
        for name in names or (play.__name__,):
            assert name not in SCENARIOS, f"two scenarios for {name}"
            SCENARIOS[name] = Scenario(play, stage, settings)
        return play
    return register
