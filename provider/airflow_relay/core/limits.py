"""Limits, budgets and holds as people state them in Variables, and the limits that adapt by themselves.

``relay_limits`` is one JSON object::

    {"airflow.runs": 40, "newsroom.critique": 2, "agents": {"start": 4, "min": 1, "max": 16},
     "budget.newsroom": 200000}

A number is the limit of a capacity key; 0 lets nothing new start. A table makes the key adaptive. A key
that begins with ``budget.`` is the number of tokens that a pipeline may use a day, in its timezone.

``relay_hold`` is one JSON object: class or pipeline → reason, or → reason and the time at which it
ends::

    {"P2": "the editor talks to the agents",
     "newsroom": {"reason": "vacation", "until": "2026-08-01T06:00Z"}}

An entry that is wrong is reported by its name and left out; the others hold.

**The adaptive rule.** :data:`BURST` errors of the classes in :data:`PRESSURE` within the key's
``window`` (60 s) halve its limit, and the halving opens a window in which further errors are counted no
more: they come from runs that had started under the old limit. ``interval`` (300 s) without such an
error, and in it as many successes as the limit allows runs, raise the limit by one; up to the limit below
that of the last burst, which is known ground, a ``window`` is enough. So a limit that has found the
service's own stays near it, where halving and equal steps alone would spend a quarter of the capacity. It
never leaves ``min`` to ``max``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta, timezone
from difflib import get_close_matches
from typing import Any, Final
from zoneinfo import ZoneInfo

from airflow_relay.core.naming import NAME_PATTERN
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, PriorityClass

LIMITS_VARIABLE: Final = "relay_limits"
HOLD_VARIABLE: Final = "relay_hold"
BUDGET_PREFIX: Final = "budget."

HIGHEST_LIMIT: Final = 1_000_000
LONGEST_WINDOW: Final = 30 * 86_400
"""Seconds."""

BURST: Final = 2
"""Errors of one window that make a burst: a single one is chance."""

PRESSURE: Final = frozenset({"rate_limit", "overloaded"})
"""Error classes that say that the service has too much to do."""

Problems = tuple[str, ...]
"""What is wrong, one sentence each with the entry's name and the cure."""


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """The declaration of an adaptive key."""

    start: int
    min: int
    max: int
    window: int = 60
    """Seconds; see the module."""
    interval: int = 300
    """Seconds; see the module."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The valid entries of ``relay_limits``."""

    fixed: Mapping[str, int] = field(default_factory=dict)
    adaptive: Mapping[str, Adaptive] = field(default_factory=dict)
    budgets: Mapping[str, int] = field(default_factory=dict)
    """Pipeline → tokens a day."""

    def effective(self, states: Mapping[str, AdaptiveState]) -> dict[str, int]:
        """Capacity key → limit now; an adaptive key without a state stands at its start."""
        return {**self.fixed, **{k: under(rule, states.get(k)).limit for k, rule in self.adaptive.items()}}


@dataclass(frozen=True, kw_only=True)
class AdaptiveState:
    """Where an adaptive key stands, as the ledger keeps it."""

    limit: int
    pressure: tuple[datetime, ...] = ()
    """Recent errors of a burst in the making."""
    halved_at: datetime | None = None
    steady_since: datetime | None = None
    """Since when no error and no raise: the clock of the next raise."""
    successes: int = 0
    """In that time."""
    pressed_at: int | None = None
    """The limit under which the last burst came."""
    told: str = "starts here"
    """The last change, for people."""

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self), default=datetime.isoformat))  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AdaptiveState:
        """The inverse of :meth:`to_json`."""
        return cls(
            limit=data["limit"],
            pressure=tuple(datetime.fromisoformat(at) for at in data["pressure"]),
            halved_at=_moment(data["halved_at"]),
            steady_since=_moment(data["steady_since"]),
            successes=data["successes"],
            pressed_at=data.get("pressed_at"),
            told=data["told"],
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one run or job that held the key ended.

    :param error_class: the class of its error, None for a success; other classes than those in
        :data:`PRESSURE` say nothing about the limit.
    """

    at: datetime
    error_class: str | None = None


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Nothing of this class or pipeline is granted until the hold ends."""

    scope: str
    reason: str
    until: datetime | None = None
    """None: until somebody takes it away."""


def under(rule: Adaptive, state: AdaptiveState | None) -> AdaptiveState:
    """The state under a rule that may have changed: the limit is moved into its bounds."""
    if state is None:
        return AdaptiveState(limit=rule.start)
    limit = min(max(state.limit, rule.min), rule.max)
    return state if limit == state.limit else replace(state, limit=limit, told="moved into its new bounds")


def adapt(
    rule: Adaptive, state: AdaptiveState | None, outcomes: Iterable[Outcome], now: datetime
) -> AdaptiveState:
    """The state after these outcomes; each outcome is to be given once, in any order.

    Outcomes later than ``now`` count as of ``now`` (clocks of machines differ).
    """
    current = under(rule, state)
    for outcome in sorted(outcomes, key=lambda o: (o.at, o.error_class or "")):
        at = min(outcome.at, now)
        if outcome.error_class is None:
            current = _succeeded(rule, current, at)
        elif outcome.error_class in PRESSURE:
            current = _pressed(rule, current, at)
    return current


def _pressed(rule: Adaptive, state: AdaptiveState, at: datetime) -> AdaptiveState:
    window = timedelta(seconds=rule.window)
    since = at if state.steady_since is None else max(at, state.steady_since)
    state = replace(state, steady_since=since, successes=0)
    if state.halved_at is not None and at < state.halved_at + window:
        return state
    pressure = (*(t for t in state.pressure if t > at - window), at)
    if len(pressure) < BURST:
        return replace(state, pressure=pressure)
    limit = max(rule.min, state.limit // 2)
    told = state.told
    if limit < state.limit:
        told = f"{state.limit} to {limit}: {BURST} rate-limit or overload errors within {rule.window} s"
    return replace(state, limit=limit, pressure=(), halved_at=at, pressed_at=state.limit, told=told)


def _succeeded(rule: Adaptive, state: AdaptiveState, at: datetime) -> AdaptiveState:
    since = at if state.steady_since is None else state.steady_since
    state = replace(state, steady_since=since, successes=state.successes + 1)
    known = state.pressed_at is not None and state.limit + 1 < state.pressed_at
    steady = min(rule.window, rule.interval) if known else rule.interval
    if at - since < timedelta(seconds=steady) or state.successes < state.limit:
        return state
    limit = min(rule.max, state.limit + 1)
    told = state.told
    if limit > state.limit:
        told = (
            f"{state.limit} to {limit}: {state.successes} successes in {int((at - since).total_seconds())} s"
        )
    return replace(state, limit=limit, steady_since=at, successes=0, told=told)


def parse_limits(
    text: str | Mapping[str, Any] | None, known: Collection[str] | None = None
) -> tuple[Limits, Problems]:
    """Read ``relay_limits``.

    :param text: the Variable's value (JSON, or the object already read); None or empty sets nothing.
    :param known: the capacity keys and pipelines that are declared. A key that is not among them is used all
        the same, since it may belong to a pipeline that is yet to come, and is reported.
    """
    entries, problems = _entries(text, LIMITS_VARIABLE)
    fixed: dict[str, int] = {}
    adaptive: dict[str, Adaptive] = {}
    budgets: dict[str, int] = {}
    for name, value in entries.items():
        where = f"{LIMITS_VARIABLE}[{name!r}]"
        subject = name.removeprefix(BUDGET_PREFIX)
        if subject != name and not _is_count(value):
            problems.append(f"{where}: {value!r} is no number of tokens: give a whole number of at least 0.")
        elif subject != name:
            budgets[subject] = value
        elif isinstance(value, Mapping):
            wrong = _adaptive_problem(value)
            if wrong:
                problems.append(f"{where}: {wrong}")
            else:
                adaptive[name] = Adaptive(**value)
        elif _is_count(value) and value <= HIGHEST_LIMIT:
            fixed[name] = value
        else:
            problems.append(
                f"{where}: {value!r} is no limit: give a whole number from 0 to {HIGHEST_LIMIT}, without "
                'quotes, or {"start": 4, "min": 1, "max": 16}.'
            )
        problems += _unknown(where, subject, known)
    return Limits(fixed=fixed, adaptive=adaptive, budgets=budgets), tuple(problems)


def parse_holds(
    text: str | Mapping[str, Any] | None, now: datetime, known: Collection[str] | None = None
) -> tuple[dict[str, Hold], Problems]:
    """Read ``relay_hold``: scope → hold, those that have ended left out.

    :param known: the pipelines that are declared; another name is used all the same and reported.
    """
    entries, problems = _entries(text, HOLD_VARIABLE)
    holds: dict[str, Hold] = {}
    classes = [klass.value for klass in PriorityClass]
    for scope, value in entries.items():
        where = f"{HOLD_VARIABLE}[{scope!r}]"
        if scope.upper() in classes and scope not in classes:
            problems.append(f"{where}: write the class {scope.upper()!r}, with a capital letter.")
            continue
        if scope not in classes and not NAME_PATTERN.match(scope):
            problems.append(f"{where}: {scope!r} is neither a class ({', '.join(classes)}) nor a pipeline.")
            continue
        hold, wrong = _hold(scope, value)
        if hold is None:
            problems.append(f"{where}: {wrong}")
        elif hold.until is None or hold.until > now:
            holds[scope] = hold
        problems += _unknown(where, scope, None if known is None else [*classes, *known])
    return holds, tuple(problems)


def over_budget(budgets: Mapping[str, int], used: Mapping[str, int]) -> frozenset[str]:
    """Pipelines whose tokens used since :func:`day_start` have reached their budget."""
    return frozenset(name for name, budget in budgets.items() if used.get(name, 0) >= budget)


def day_start(zone: str, now: datetime) -> datetime:
    """The first instant (UTC) of the calendar day of ``now`` in this timezone: from here on tokens count."""
    return _midnight(zone, now, days=0)


def day_end(zone: str, now: datetime) -> datetime:
    """The first instant (UTC) of the next calendar day in this timezone: budgets start again."""
    return _midnight(zone, now, days=1)


def _midnight(zone: str, now: datetime, *, days: int) -> datetime:
    local = ZoneInfo(zone)
    day = now.astimezone(local).date() + timedelta(days=days)
    return datetime(day.year, day.month, day.day, tzinfo=local).astimezone(timezone.utc)


def _entries(text: str | Mapping[str, Any] | None, variable: str) -> tuple[Mapping[str, Any], list[str]]:
    value: Any = text
    if isinstance(text, str):
        try:
            value = json.loads(text) if text.strip() else {}
        except (ValueError, RecursionError) as e:
            return {}, [f"{variable}: no valid JSON ({e}); nothing of it is used."]
    if value is None:
        return {}, []
    if not isinstance(value, Mapping):
        return {}, [f"{variable}: {value!r} is no JSON object of names and values; nothing of it is used."]
    return value, []


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _adaptive_problem(value: Mapping[str, Any]) -> str:
    names = ("start", "min", "max", "window", "interval")
    strange = [n for n in value if n not in names]
    if strange:
        return f"{', '.join(map(repr, strange))}: an adaptive limit knows {', '.join(names)}."
    wrong = [n for n in names[:3] if n not in value] + [
        n for n, v in value.items() if not _is_count(v) or v < 1
    ]
    if wrong:
        return f"{', '.join(map(repr, wrong))}: give whole numbers of at least 1 for start, min and max."
    high = [
        f"{n}={v} is above {most}"
        for n, v in value.items()
        if v > (most := LONGEST_WINDOW if n in names[3:] else HIGHEST_LIMIT)
    ]
    if high:
        return f"{', '.join(high)}."
    if not value["min"] <= value["start"] <= value["max"]:
        return f"start={value['start']} must lie between min={value['min']} and max={value['max']}."
    return ""


def _hold(scope: str, value: object) -> tuple[Hold | None, str]:
    entry = {"reason": value} if isinstance(value, str) else value
    if not isinstance(entry, Mapping) or not isinstance(entry.get("reason"), str):
        return None, f'{value!r}: give a reason, or {{"reason": "…", "until": "2026-08-01T06:00Z"}}.'
    strange = [n for n in entry if n not in ("reason", "until")]
    if strange:
        return None, f"{', '.join(map(repr, strange))}: a hold knows reason and until."
    try:
        until = _moment(entry.get("until"))
    except (TypeError, ValueError, OverflowError):
        return None, f"until={entry['until']!r} is no time: write it as 2026-08-01T06:00Z."
    if until is not None and until.tzinfo is None:
        return None, f"until={entry['until']!r} has no timezone: append Z, or an offset such as +02:00."
    return Hold(scope=scope, reason=entry["reason"].strip() or "no reason given", until=until), ""


def _moment(text: Any) -> datetime | None:
    """An ISO 8601 time; Python 3.10 reads no ``Z`` by itself."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(text)
    moment = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text.strip()))
    return moment if moment.tzinfo is None else moment.astimezone(timezone.utc)


def _unknown(where: str, name: str, known: Collection[str] | None) -> list[str]:
    if known is None or name in known or name == AIRFLOW_RUNS_KEY:
        return []
    near = get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return [f"{where}: no pipeline declares {name!r}.{hint}"]
