# SPDX-License-Identifier: Apache-2.0
"""What happens to leases, by the names of `subletd --list-failpoints`: scenarios play it, a test interrupts them."""
import dataclasses
from collections.abc import Callable


@dataclasses.dataclass
class Scenario:
    play: Callable           # of a Retrying client, and of what the stage returned if there is one
    stage: Callable | None   # before the daemon is started that is interrupted
    settings: dict           # of its configuration


SCENARIOS = {}


def scenario(*names, stage=None, **settings):
    """Registers a function for what it is named after, or for those names."""
    def register(play):
        for name in names or (play.__name__,):
            assert name not in SCENARIOS, f"two scenarios for {name}"
            SCENARIOS[name] = Scenario(play, stage, settings)
        return play
    return register
