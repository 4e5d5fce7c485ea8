"""Passages as a writer can quote them: whole sentences that name what they are about.

Much of Airflow's documentation is written under a name and leaves it out: "This defines the maximum number of
…", "the slot pool this task should run in", "Milliseconds spent running one scheduler loop". Standing alone on a
page such words say too little. So the writer gets them as sentences with the name put in. Only that is changed; a
page's footnote shows the words as they stand in the file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .reference import setting_at

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
    quote = quote[:1].upper() + quote[1:]
    return {**passage, "quote": quote if quote.endswith(_END) else f"{quote}."}
