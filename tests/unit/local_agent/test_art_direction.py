from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_relay.local_agent.extractive.art_direction import _DRAWINGS, art_direction

SVG = "{http://www.w3.org/2000/svg}"


def cover(title, body="A pool has slots."):
    return art_direction({"draft": {"title": title, "sections": [{"heading": "A", "sentences": [body]}]}})


def shown_text(svg):
    return " ".join(span.text or "" for span in ET.fromstring(svg).iter(f"{SVG}tspan"))


def test_the_cover_of_a_draft_is_valid_svg_and_shows_its_title(do, draft):
    result = do("art_direction", draft=draft)
    root = ET.fromstring(result["svg"])
    assert root.tag == f"{SVG}svg"
    assert shown_text(result["svg"]) == draft["title"]
    assert draft["title"] in result["alt"]
    assert root.find(f"{SVG}title").text == result["alt"]


def test_the_same_draft_gives_the_same_bytes(do, draft):
    assert do("art_direction", draft=draft) == do("art_direction", draft=draft)


def test_other_titles_give_other_palettes():
    assert len({cover(f"Title {n}")["palette"]["background"] for n in range(20)}) > 10


def test_markup_in_a_title_is_text():
    svg = cover('<script>alert("x")</script> & friends')["svg"]
    assert "<script" not in svg
    assert shown_text(svg).replace(" ", "") == '<script>alert("x")</script>&friends'


def test_the_motif_follows_the_subject():
    assert cover("How the queue fills")["motif"] == "bars"
    assert cover("Metrics and logs")["motif"] == "waves"


@pytest.mark.parametrize("motif", sorted(_DRAWINGS))
@pytest.mark.parametrize("value", [0, 127, 255])
def test_every_motif_stays_on_the_canvas(motif, value):
    shapes = ET.fromstring(f"<g>{_DRAWINGS[motif]([value] * 40)}</g>")
    assert len(shapes) > 4
    for shape in shapes:
        assert 0 <= float(shape.get("x") or shape.get("cx") or 0) <= 1200
        assert 0 <= float(shape.get("y") or shape.get("cy") or 0) <= 630


@given(st.text(min_size=1, max_size=300))
def test_any_title_gives_well_formed_xml_of_at_most_five_lines(title):
    spans = list(ET.fromstring(cover(title)["svg"]).iter(f"{SVG}tspan"))
    assert 1 <= len(spans) <= 5
    assert all(len(span.text or "") <= 26 for span in spans)
