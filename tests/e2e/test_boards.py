# SPDX-License-Identifier: Apache-2.0
"""The alerts for Prometheus and the board for Grafana name metrics, labels and label values that /metrics has."""
import json
import re

import pytest
import yaml

from tests.e2e.test_metrics import NAMES, scrape
from tests.support.contract import ROOT

ALERTS = ROOT / "packaging/prometheus/alerts.yml"
BOARD = ROOT / "packaging/grafana/sublet.json"


def expressions():
    """Returns (where, text) for each query of both files."""
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    board = json.loads(BOARD.read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


QUERIES = list(expressions())


@pytest.mark.parametrize("where, text", QUERIES, ids=[where for where, _ in QUERIES])
def test_a_query_uses_metrics_and_labels_that_exist(where, text):
    used = re.findall(r"(sublet_[a-z_]+)(?:\{([^}]*)\})?", text)
    assert used, f"{where} asks for nothing of ours"
    for name, matchers in used:
        assert name in NAMES, f"{where}: there is no metric {name}"
        labels = set(re.findall(r"([a-z]+)\s*(?:=~|!=|=)", matchers or ""))
        assert labels <= NAMES[name] | {"instance"}, f"{where}: {name} has no label {labels - NAMES[name]}"
        by = re.search(r"(?:by|without) \(([^)]*)\)", text)
        grouped = set(re.split(r",\s*", by.group(1))) if by else set()
        assert grouped <= NAMES[name] | {"le"}, f"{where}: {name} has no label {grouped - NAMES[name]}"


def test_label_values_in_queries_occur(daemon):
    found = scrape(daemon.api())
    for where, text in QUERIES:
        for name, label, value in re.findall(r'(sublet_[a-z_]+)\{[^}]*?\b([a-z]+)(?:=~|!=|=)"([a-z|]+)"', text):
            known = {pair for sample in found[name] for pair in re.findall(r'([a-z]+)="([^"]*)"', sample or "")}
            for word in value.split("|"):
                assert (label, word) in known, f"{where}: no sample of {name} has {label}={word}"


def test_panels_have_places_of_their_own():
    panels = json.loads(BOARD.read_text())["panels"]
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
