"""Show the inline marks of reStructuredText, which Airflow's documentation is written in, as HTML."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

# Characters that neither XML nor HTML may contain.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_INLINE = re.compile(
    r"``(?P<code>[^`]+)``"
    r"|:[a-z:]+:`~?\.?(?P<role>[^`<]+?)(?:\s*<[^`>]*>)?`"
    r"|`(?P<label>[^`<]+?)\s*<(?P<url>https?://[^\s`>]+)>`__?"
    r"|`(?P<tick>[^`]+)`"
    r"|\*\*(?P<strong>[^*]+)\*\*"
    r"|(?P<option>\[[a-z_]+\] [a-z]+(?:_[a-z0-9]+)*)"
    r"|(?P<name>\b(?:[A-Za-z]\w*\.)*[A-Za-z][A-Za-z0-9]*_\w*[A-Za-z0-9]\b(?:\(\))?)"
    r"|(?P<value>\b(?:True|False|None)\b)"
)


def printable(text: str) -> str:
    """The text without characters that HTML and XML cannot hold."""
    return _FORBIDDEN.sub("", text)


def inline(text: str) -> Markup:
    """One paragraph as safe HTML: code, strong text and links; everything else is escaped."""
    text = printable(text)
    done = []
    position = 0
    for match in _INLINE.finditer(text):
        done += [escape(text[position : match.start()]), _element(match)]
        position = match.end()
    done.append(escape(text[position:]))
    return Markup("").join(done)


def plain(text: str) -> str:
    """The same paragraph without marks, for attributes and feeds."""
    return _INLINE.sub(
        lambda match: next(group for group in match.groups() if group is not None), printable(text)
    )


def _element(match: re.Match[str]) -> Markup:
    if match["url"]:
        return Markup('<a href="{}" rel="noopener">{}</a>').format(match["url"], match["label"])
    if match["strong"]:
        return Markup("<strong>{}</strong>").format(match["strong"])
    code = match["code"] or match["tick"] or match["option"] or match["name"] or match["value"]
    # A role names an object by its full path; its last part is what people read.
    return Markup("<code>{}</code>").format(code or match["role"].rsplit(".", 1)[-1])
