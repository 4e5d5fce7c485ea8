"""What every form of the report shares: measures side by side, claims with verdicts, inputs with sources."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from airflow_relay.simulation.experiment import Estimate, Result
from airflow_relay.simulation.measures import MEASURES
from airflow_relay.simulation.quantity import Quantity
from airflow_relay.simulation.scenario import Claim, Scenario


def number(value: float) -> str:
    """Three significant digits, thousands apart; a dash for nothing."""
    if math.isnan(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}" if abs(value) >= 0.005 else "0"


def spread(estimate: Estimate) -> str:
    """A figure with its 95 % confidence interval to two digits, as ``5.41 ± 0.17``."""
    half, mean = estimate.half_width, estimate.mean
    if math.isnan(half) or half < 0.005 * max(1.0, abs(mean)):
        return number(mean)
    decimals = max(0, 1 - math.floor(math.log10(half)))
    if decimals == 0:
        return f"{number(mean)} ± {number(half)}"
    return f"{mean:.{decimals}f} ± {half:.{decimals}f}"


@dataclass(frozen=True)
class Row:
    """One measure for all models."""

    name: str
    title: str
    unit: str
    estimates: dict[str, Estimate]


def rows(result: Result) -> list[Row]:
    """Measures of which at least one model has something to say."""
    found = []
    for name, measure in MEASURES.items():
        estimates = {model: o.figures[name] for model, o in result.outcomes.items()}
        if any(e.mean and not math.isnan(e.mean) for e in estimates.values()):
            found.append(Row(name, measure.title, measure.unit, estimates))
    return found


class Standing(str, Enum):
    """How a figure stands to a document's range."""

    IN_RANGE = "in range"
    AT_THE_EDGE = "at the edge"  # the mean is outside, its confidence interval reaches in
    OUTSIDE = "outside"


@dataclass(frozen=True)
class Verdict:
    """A claim of a document beside the twin's figure.

    :param literal: the figure with the document's stated inputs alone, where that is another model.
    """

    claim: Claim
    estimate: Estimate
    literal: Estimate | None

    @property
    def standing(self) -> Standing:
        """Where the twin's mean lies."""
        claim, found = self.claim, self.estimate
        if claim.low <= round(found.mean, 2) <= claim.high:
            return Standing.IN_RANGE
        reaches = found.low <= claim.high and found.high >= claim.low
        return Standing.AT_THE_EDGE if reaches else Standing.OUTSIDE

    @property
    def holds(self) -> bool:
        return self.standing is not Standing.OUTSIDE

    @property
    def literal_holds(self) -> bool | None:
        if self.literal is None:
            return None
        return self.claim.low <= round(self.literal.mean, 2) <= self.claim.high

    @property
    def said(self) -> str:
        """The document's range."""
        low, high = number(self.claim.low), number(self.claim.high)
        return (low if low == high else f"{low} to {high}") + (
            f" {self.claim.unit}" if self.claim.unit else ""
        )


def verdicts(result: Result) -> list[Verdict]:
    """Every claim of the scenario."""
    return [
        Verdict(
            claim,
            result.outcomes[claim.model].figures[claim.measure],
            None if claim.literal is None else result.outcomes[claim.literal].figures[claim.measure],
        )
        for claim in result.scenario.claims
        if claim.model in result.outcomes
    ]


@dataclass(frozen=True)
class Input:
    """One number of a scenario."""

    where: str
    value: str
    origin: str

    @property
    def assumed(self) -> bool:
        return self.origin.startswith("ASSUMPTION")


def inputs(scenario: Scenario) -> list[Input]:
    """Every number with its source; numbers left at an unused default of 0 are not shown."""
    found = [
        Input(where, quantity.words(), quantity.origin)
        for where, quantity in _walk(scenario, "")
        if quantity.source or quantity.assumption or quantity.value != 0
    ]
    seen: dict[tuple[str, str], Input] = {}
    for entry in found:  # the same number in several places (one stage's time in timers and pipeline) once
        seen.setdefault((entry.where.rpartition(".")[2] + entry.value, entry.origin), entry)
    return list(seen.values())


def _walk(value: Any, where: str) -> Iterator[tuple[str, Quantity]]:
    if isinstance(value, Quantity):
        yield where, value
    elif isinstance(value, BaseModel):
        name = getattr(value, "name", "")
        here = f"{where}.{name}" if name and where else where
        for field in type(value).model_fields:
            if not (isinstance(value, Scenario) and field in ("claims", "findings")):
                yield from _walk(getattr(value, field), _join(here, field))
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _walk(child, _join(where, str(key)))
    elif isinstance(value, tuple):
        for child in value:
            yield from _walk(child, where)


_PASSED_OVER = ("pipelines", "stages", "models", "phases", "timers", "overnight", "tracks")


def _join(where: str, field: str) -> str:
    if field in _PASSED_OVER:
        return where
    return f"{where}.{field}" if where else field


def as_json(result: Result) -> dict[str, Any]:
    """The whole result for programs."""
    return {
        "scenario": result.scenario.name,
        "title": result.scenario.title,
        "days": result.days,
        "seeds": list(result.seeds),
        "models": {
            name: {
                "title": outcome.model.title,
                "kind": outcome.model.kind.value,
                "figures": {m: _json(e) for m, e in outcome.figures.items() if not math.isnan(e.mean)},
                "end_to_end_hours": {
                    q: _finite(outcome.end_to_end.quantile(share))
                    for q, share in (("min", 0), ("p05", 0.05), ("median", 0.5), ("p95", 0.95), ("max", 1))
                },
                "waiting_items": dict(outcome.waiting),
                "slots_in_use": dict(outcome.in_use),
                "limits": dict(outcome.limits),
            }
            for name, outcome in result.outcomes.items()
        },
        "claims": [
            {
                "text": v.claim.text,
                "document": v.claim.quote,
                "range": [v.claim.low, v.claim.high],
                "unit": v.claim.unit,
                "twin": _json(v.estimate),
                "standing": v.standing.value,
                "stated_inputs_alone": None if v.literal is None else _json(v.literal),
                "note": v.claim.note,
            }
            for v in verdicts(result)
        ],
        "inputs": [{"what": i.where, "value": i.value, "origin": i.origin} for i in inputs(result.scenario)],
    }


def _json(estimate: Estimate) -> dict[str, float | None]:
    return {
        "mean": _finite(estimate.mean),
        "ci95_low": _finite(estimate.low),
        "ci95_high": _finite(estimate.high),
        "least_seed": _finite(estimate.least),
        "most_seed": _finite(estimate.most),
    }


def _finite(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None
