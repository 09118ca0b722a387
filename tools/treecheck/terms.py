# SPDX-License-Identifier: Apache-2.0
"""Words that terms of docs/glossary.md have replaced: not in comments, also those behind code, and not in documents."""
import re

from . import Finding
from .prose import fragments_of

# (the word, what to say instead). A word is refused in any case; its other meanings are not in these patterns.
REPLACED = [
    (r"askers?", "preemptor, or waiting lease"),
    (r"(?:a|the|this|each|no) makings?", "preemption plan"),
    (r"(?:some|any|no)body's word|(?:owner|user|admin|caller|preemptor)s?'s? word|whose word",
     "preemption request"),
    (r"(?<!ground )grounds?(?! truth)", "cause"),
    (r"rooms?", "free memory, capacity, reserved memory, or space"),
    (r"(?:a|the|its|their|his|her|whose|next|last|first|each|no) turns?(?! (?:off|on|out|away|into|to)\b)",
     "time slice, or place in the queue"),
    (r"contests?", "slice group"),
    (r"unfit|barred|hindrances?|left alone|leaves? (?:it|them) alone", "obstacle, or left unchanged"),
    (r"sides? of (?:a|the) parking", "attempt"),
    (r"deaf", "unresponsive"),
    (r"told to go on", "resume order, or resumed"),
    (r"relaps(?:e[sd]?|ing)|on top", "allocated while paused, or above"),
    (r"outsiders?|strangers?", "unleased process, or unknown caller"),
    (r"forecasts?|prospects?|rehears\w+", "projection, estimate, or dry run"),
    (r"deserted", "orphaned"),
    (r"(?<!\")woke|stood still", "clock gap"),
]
PATTERN = re.compile("|".join(rf"(?P<t{number}>\b(?:{words})\b)" for number, (words, _) in enumerate(REPLACED)), re.I)
# Victims: the enforcer spares processes, and the core makes leases ineligible.
SPARED = re.compile(r"\bspare[sd]?\b", re.I)


def check(tree):
    for path, text in sorted(tree.items()):
        for fragment in fragments_of(path, text):
            yield from replaced(path, fragment)


def replaced(path, fragment):
    """The replaced words of a text. The glossary explains terms by them."""
    if path == "docs/glossary.md":
        return
    for line, sentence in fragment.sentences():
        for match in PATTERN.finditer(sentence):
            instead = REPLACED[int(match.lastgroup[1:])][1]
            yield Finding(path, line, "term", f"'{match.group(0)}': write {instead} (docs/glossary.md)")
        if path.startswith((
                "src/lease/", "src/state/", "src/core/", "src/explain/")) and (match := SPARED.search(sentence)):
            yield Finding(path, line, "term", f"'{match.group(0)}': write ineligible (docs/glossary.md)")
