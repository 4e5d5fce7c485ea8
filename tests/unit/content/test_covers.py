from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from content.covers import CoverError, safe_svg

OPEN = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 12 6">'
)


@pytest.mark.parametrize("reference", ["url(#g)", "url('#g')", "url( #g )"])
def test_references_inside_the_drawing_are_kept(reference):
    assert reference in safe_svg(f'{OPEN}<rect fill="{reference}"/></svg>')


def test_a_drawing_is_kept():
    svg = (
        OPEN + '<defs><linearGradient id="g"><stop offset="0"/></linearGradient></defs>'
        '<rect fill="url(#g)" width="12" height="6"/><text>A &amp; B</text></svg>'
    )
    root = ET.fromstring(safe_svg(svg))
    assert [child.tag.rsplit("}", 1)[1] for child in root] == ["defs", "rect", "text"]
    assert root[1].attrib["fill"] == "url(#g)"
    assert root[2].text == "A & B"


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        "<foreignObject><p/></foreignObject>",
        '<image href="https://example.org/x.png"/>',
        '<rect onload="alert(1)"/>',
        '<rect ONCLICK="alert(1)"/>',
        '<use href="https://example.org/x.svg#a"/>',
        '<use xlink:href="https://example.org/x.svg#a"/>',
        '<rect style="fill: url(https://example.org/x)"/>',
        "<style>@\\69mport 'https://example.org/x.css';</style>",
        "<style>@import 'https://example.org/x.css';</style>",
        "<style>rect { fill: url( 'https://example.org/x') }</style>",
        '<a href="javascript:alert(1)"><rect/></a>',
        '<animate attributeName="href" to="javascript:alert(1)"/>',
        '<p xmlns="http://www.w3.org/1999/xhtml"/>',
    ],
)
def test_what_runs_or_loads_something_is_refused(inside):
    with pytest.raises(CoverError):
        safe_svg(OPEN + inside + "</svg>")


@pytest.mark.parametrize(
    "svg",
    [
        "",
        "no svg",
        "<svg/>",
        "<html xmlns='http://www.w3.org/2000/svg'/>",
        OPEN,
        '<!DOCTYPE svg [<!ENTITY a "aa">]>' + OPEN + "&a;</svg>",
        OPEN + "<text>" + "a" * 200_001 + "</text></svg>",
    ],
)
def test_what_is_no_plain_svg_is_refused(svg):
    with pytest.raises(CoverError):
        safe_svg(svg)
