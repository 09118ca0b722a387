# SPDX-License-Identifier: Apache-2.0
import pytest

import simcards


@pytest.fixture
def make_cards(tmp_path):
    """Makes simulated cards by specification; programs on them end with the test."""
    made = []

    def make(spec="1x4GiB", name="cards"):
        made.append(simcards.Cards(tmp_path / name, spec))
        return made[-1]

    yield make
    for cards in made:
        cards.end()


@pytest.fixture
def cards(make_cards):
    return make_cards()
