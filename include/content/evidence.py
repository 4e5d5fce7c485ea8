"""Passages as a writer can quote them: whole sentences that name what they are about.

Much of Airflow's documentation is written under a name and leaves it out: "This defines the maximum number",
"the slot pool this task should run in". On a page such words say too little. So the writer gets them as
sentences with the name put in. Nothing else changes, and a page's footnote shows the words of the file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .reference import metric_at, setting_at

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERBS = "defines|determines|controls|specifies|sets|limits|tells|is"
# What stands for the setting's own name in its description, and how the name is put in.
_STAND_INS = (
    (re.compile(rf"(?m)^This (?=(?:{_VERBS}) )"), "The setting {} "),
    (re.compile(r"\bThis (?:setting|value|option)\b"), "The setting {}"),
    (re.compile(r"\b[Ss]et(?:ting)? this (?=to |notably )"), "Set {} "),
    (re.compile(r"\bthis (?:setting|value|option|number)\b"), "{}"),
    (re.compile(r"\bthis many seconds\b"), "{} seconds"),
)
# A metric's sentence is often qualified by a second ("Metric with dag_id tagging"): they belong together.
_QUALIFIER = re.compile(r"\.\s+([A-Z])(?=[a-z])")
_END = (".", "!", "?", ":", "…")


def as_evidence(passage: Mapping[str, Any]) -> dict[str, Any]:
    """A passage as research returns it, with its quote turned into sentences; everything else stays."""
    quote = str(passage["quote"]).strip()
    setting = setting_at(str(passage["path"]), int(passage["line"]))
    if setting is not None:
        for pattern, replacement in _STAND_INS:
            quote = pattern.sub(replacement.format(setting.option), quote)
        kind = setting.option.rsplit("_", 1)[-1]
        quote = re.sub(rf"\bthis {kind}\b", setting.option, quote)
    elif metric_at(str(passage["path"]), int(passage["line"])) is not None:
        quote = _QUALIFIER.sub(lambda match: f"; {match[1].lower()}", quote)
    quote = quote[:1].upper() + quote[1:]
    return {**passage, "quote": quote if quote.endswith(_END) else f"{quote}."}
