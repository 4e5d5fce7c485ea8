"""``item()`` in templates of runs that have no item: rendered before the guard skips the task."""

from __future__ import annotations

import pytest
from jinja2 import Environment, StrictUndefined

from airflow_relay.item_context import NoItem


@pytest.mark.parametrize(
    "template",
    [
        "{{ item().key }}",
        "{{ item().payload.ask }}",
        "{{ item().payload['a']['b'] }}",
        "{{ item().payload.get('x') }}",
        "{{ item().results.research.text }}",
        "{% for part in item().payload.parts %}{{ part }}{% endfor %}",
    ],
)
def test_an_absent_item_renders_as_nothing_under_airflows_strict_templates(template: str) -> None:
    environment = Environment(undefined=StrictUndefined, autoescape=False)
    assert environment.from_string(template).render(item=NoItem) == ""
