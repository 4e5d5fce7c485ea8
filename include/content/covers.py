"""Cover pictures: SVG from an agent, which may be a model, so it is checked before it is published."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

_SVG = "{http://www.w3.org/2000/svg}"
_LONGEST = 200_000
_ELEMENTS = frozenset(
    (  # noqa: SIM905 - a list of words reads best as words
        "svg g defs title desc rect circle ellipse line polyline polygon path text tspan linearGradient "
        "radialGradient stop clipPath mask pattern symbol use style filter feGaussianBlur feTurbulence "
        "feColorMatrix feOffset feMerge feMergeNode feBlend feFlood feComposite"
    ).split()
)
# The last one: a backslash can hide any of the others from a search.
_OUTSIDE = re.compile(r"@import|url\((?!\s*['\"]?#)|javascript:|\\", re.IGNORECASE)


class CoverError(ValueError):
    """A cover that must not be published; the text says which part and what art direction has to change."""


def safe_svg(svg: str) -> str:
    """The SVG as it may be published: well formed, drawing elements only, no script, nothing loaded.

    Raises `CoverError` otherwise.
    """
    if len(svg) > _LONGEST:
        raise CoverError(f"the cover has {len(svg)} characters; at most {_LONGEST} are published")
    if "<!DOCTYPE" in svg or "<!ENTITY" in svg:
        raise CoverError("the cover declares a document type; leave it out")
    try:
        root = ET.fromstring(svg)  # noqa: S314 - entities need a document type, which is refused above
    except ET.ParseError as error:
        raise CoverError(f"the cover is no well-formed SVG: {error}") from error
    if root.tag != f"{_SVG}svg":
        raise CoverError(
            f"the cover's root is {root.tag!r}; it must be <svg xmlns='http://www.w3.org/2000/svg'>"
        )
    for element in root.iter():
        _check(element)
    ET.register_namespace("", _SVG[1:-1])
    return ET.tostring(root, encoding="unicode")


def _check(element: ET.Element) -> None:
    name = str(element.tag).removeprefix(_SVG)
    if name not in _ELEMENTS:
        raise CoverError(f"the cover contains <{name}>; only drawing elements are published")
    for attribute, value in element.attrib.items():
        local = attribute.rsplit("}", 1)[-1].lower()
        leads_away = local == "href" and not value.startswith("#")
        if local.startswith("on") or leads_away or _OUTSIDE.search(value):
            raise CoverError(f"<{name}> has the attribute {attribute!r}, which runs or loads something")
    if name == "style" and _OUTSIDE.search(element.text or ""):
        raise CoverError("the cover's <style> loads something from elsewhere")
