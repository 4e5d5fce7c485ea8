"""Patterns of English wording that reviews and critics look for."""

from __future__ import annotations

import re

_IRREGULAR = (
    "begun|bound|broken|brought|built|bought|caught|chosen|cut|done|drawn|driven|found|forgotten|given|gone|grown|"
    "held|hidden|kept|known|laid|led|left|lost|made|meant|met|paid|put|read|run|said|seen|sent|set|shown|shut|sold|"
    "spent|split|stored|stuck|taken|taught|thrown|told|thought|understood|written"
)
PASSIVE = re.compile(
    rf"\b(?:am|is|are|was|were|be|been|being|gets?|got)\s+(?:not\s+|also\s+|\w+ly\s+)?(?:\w+ed|{_IRREGULAR})\b",
    re.IGNORECASE,
)
"""A form of *to be* with a past participle behind it."""

ABSOLUTE = re.compile(
    r"\b(?:always|never|guaranteed?|completely|perfect(?:ly)?|everyone|nobody|no one|impossible|undoubtedly|"
    r"without exception|100\s?%|the best|the worst|the only)\b",
    re.IGNORECASE,
)
LOADED = re.compile(
    r"\b(?:amazing|awesome|awful|brilliant|catastrophic|disastrous|disgraceful|evil|game[- ]chang\w+|"
    r"horrific|"
    r"incredible|insane|magical|outrageous|pathetic|revolutionary|ridiculous|scandalous|shocking|stunning|stupid|"
    r"terrible|unbelievable|world[- ]class)\b",
    re.IGNORECASE,
)
ATTRIBUTION = re.compile(
    r"\b(?:according to|said|says|stated?|reports?|reported|wrote|writes|argues?|claims?|told|found that)\b"
    r"|[\"\u201c\u201d]",
    re.IGNORECASE,
)
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?\s?%?(?![\w.]*\w)")
NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+(?:\s+[A-Z][a-z]+)+")
"""Two or more capitalised words inside a sentence."""
