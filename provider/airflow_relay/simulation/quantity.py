"""Numbers of a scenario: a constant or a distribution, and where it comes from."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from statistics import NormalDist
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Finite = Annotated[float, Field(allow_inf_nan=False)]
Quantile = Callable[[float], float]
"""(0, 1) → value; fed with uniform numbers it draws from the distribution."""

_NORMAL: Final = NormalDist()
_Z95: Final = _NORMAL.inv_cdf(0.95)


class Lognormal(BaseModel):
    """A long right tail, as the times of model calls have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    median: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    p95: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _ordered(self) -> Lognormal:
        if self.p95 < self.median:
            raise ValueError(f"p95={self.p95:g} is below median={self.median:g}")
        return self


class Quantity(BaseModel):
    """One number of a scenario. Give exactly one of the shapes; a bare number is a constant.

    ``source`` says where a document states it, ``assumption`` why it was chosen where none does.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: Finite | None = None
    uniform: tuple[Finite, Finite] | None = None
    """Lowest and highest."""
    triangular: tuple[Finite, Finite, Finite] | None = None
    """Lowest, most likely and highest."""
    lognormal: Lognormal | None = None
    choice: dict[float, Annotated[float, Field(ge=0)]] | None = None
    """Value → weight."""
    sample: tuple[Finite, ...] | None = None
    """Observed values: drawn from with interpolation between neighbours."""
    source: str | None = None
    assumption: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, data: Any) -> Any:
        if isinstance(data, bool):
            raise ValueError("a truth value is no number")  # noqa: TRY004 - pydantic wants ValueError
        if isinstance(data, (int, float)):
            return {"value": data}
        if not isinstance(data, (dict, Quantity)):
            raise ValueError(f"{data!r} is no number: write one, or a shape such as {{uniform: [8, 22]}}")  # noqa: TRY004
        return data

    @model_validator(mode="after")
    def _one_shape(self) -> Quantity:
        given = [name for name in SHAPES if getattr(self, name) is not None]
        if len(given) != 1:
            what = " and ".join(given) or "none"
            raise ValueError(f"give exactly one of {', '.join(SHAPES)} (given: {what})")
        for name in ("uniform", "triangular"):
            edges = getattr(self, name)
            if edges is not None and list(edges) != sorted(edges):
                raise ValueError(f"{name}: {list(edges)} must be in ascending order")
        if self.choice is not None and sum(self.choice.values()) <= 0:
            raise ValueError("choice: the weights must not all be 0")
        if self.sample is not None and not self.sample:
            raise ValueError("sample: give at least one value")
        if self.source is not None and self.assumption is not None:
            raise ValueError("give a source or an assumption, not both")
        return self

    @property
    def constant(self) -> float:
        """The value of a constant.

        :raises ValueError: it is a distribution.
        """
        if self.value is None:
            raise ValueError("a plain number is needed here, not a distribution")
        return self.value

    def quantile(self) -> Quantile:
        """Its inverse distribution function."""
        if self.uniform is not None:
            return _uniform(*self.uniform)
        if self.triangular is not None:
            return _triangular(*self.triangular)
        if self.lognormal is not None:
            return _lognormal(self.lognormal)
        if self.choice is not None:
            return _choice(self.choice)
        if self.sample is not None:
            return _sampled(self.sample)
        value = self.constant
        return lambda _: value

    def scaled(self, factor: float) -> Quantity:
        """The same shape, each value times ``factor`` (above 0)."""
        changes: dict[str, Any] = {}
        for name in ("uniform", "triangular", "sample"):
            edges = getattr(self, name)
            if edges is not None:
                changes[name] = tuple(edge * factor for edge in edges)
        if self.value is not None:
            changes["value"] = self.value * factor
        if self.lognormal is not None:
            changes["lognormal"] = Lognormal(
                median=self.lognormal.median * factor, p95=self.lognormal.p95 * factor
            )
        if self.choice is not None:
            changes["choice"] = {value * factor: weight for value, weight in self.choice.items()}
        return self.model_copy(update=changes)

    def words(self) -> str:
        """The number for people, such as ``"8 to 22"`` or ``"median 15, p95 40"``."""
        if self.uniform is not None:
            return f"{self.uniform[0]:g} to {self.uniform[1]:g}, evenly"
        if self.triangular is not None:
            low, mode, high = self.triangular
            return f"{low:g} to {high:g}, mostly {mode:g}"
        if self.lognormal is not None:
            return f"median {self.lognormal.median:g}, p95 {self.lognormal.p95:g} (lognormal)"
        if self.choice is not None:
            total = sum(self.choice.values())
            return ", ".join(f"{v:g} ({w / total:.0%})" for v, w in self.choice.items())
        if self.sample is not None:
            middle = _sampled(self.sample)(0.5)
            return f"{len(self.sample)} observations, median {middle:.3g}"
        return f"{self.constant:g}"

    @property
    def origin(self) -> str:
        """Source or assumption for people."""
        if self.source is not None:
            return f"source: {self.source}"
        return f"ASSUMPTION: {self.assumption}" if self.assumption is not None else "given by the user"


SHAPES: Final = ("value", "uniform", "triangular", "lognormal", "choice", "sample")


def _is_constant(quantity: Quantity) -> Quantity:
    quantity.constant  # noqa: B018 - raises
    return quantity


def _not_negative(quantity: Quantity) -> Quantity:
    if quantity.quantile()(1e-9) < 0:
        raise ValueError("must not be negative")
    return quantity


def _share(quantity: Quantity) -> Quantity:
    if not 0 <= quantity.constant <= 1:
        raise ValueError(f"a share lies between 0 and 1, not {quantity.constant:g}")
    return quantity


Amount = Annotated[Quantity, AfterValidator(_not_negative)]
"""A distribution of values that are not negative."""
Constant = Annotated[Quantity, AfterValidator(_is_constant), AfterValidator(_not_negative)]
Share = Annotated[Quantity, AfterValidator(_is_constant), AfterValidator(_share)]


def _uniform(low: float, high: float) -> Quantile:
    width = high - low
    return lambda u: low + width * u


def _triangular(low: float, mode: float, high: float) -> Quantile:
    if high == low:
        return lambda _: low
    split = (mode - low) / (high - low)

    def at(u: float) -> float:
        if u < split:
            return low + math.sqrt(u * (high - low) * (mode - low))
        return high - math.sqrt((1 - u) * (high - low) * (high - mode))

    return at


def _lognormal(shape: Lognormal) -> Quantile:
    centre, width = math.log(shape.median), math.log(shape.p95 / shape.median) / _Z95
    inverse, exp = _NORMAL.inv_cdf, math.exp
    return lambda u: exp(centre + width * inverse(u))


def _choice(weights: dict[float, float]) -> Quantile:
    values = list(weights)
    total = sum(weights.values())
    edges = [edge / total for edge in accumulate(weights.values())]
    last = len(values) - 1
    return lambda u: values[min(bisect_right(edges, u), last)]


def _sampled(observed: tuple[float, ...]) -> Quantile:
    values = sorted(observed)
    steps = len(values) - 1

    def at(u: float) -> float:
        place = u * steps
        below = int(place)
        if below >= steps:
            return values[-1]
        return values[below] + (values[below + 1] - values[below]) * (place - below)

    return at
