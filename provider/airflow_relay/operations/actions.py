"""The actions of people on a ledger: plain functions that command line, form and page share.

Each takes a :class:`~airflow_relay.ledger.store.Ledger` and ``now`` (aware UTC), does its work in short
transactions of its own, and returns an :class:`ActionResult`. An action that finds its work done changes
nothing and says so: twice is once. None of them starts a DAG run: what became ready is granted by
:func:`dispatch` here, by any later hand-off, or by the next tick, and sent by these.

``by`` names the person for the log.

All raise:

* :class:`~airflow_relay.ledger.errors.UnknownItemError`: no such item, or several of that key;
* :class:`~airflow_relay.ledger.errors.UnknownPipelineError`: no such pipeline;
* :class:`~airflow_relay.core.pipeline.PipelineError`: no such stage, or (as ``UnknownOutcomeError``) a router
  that asks for an outcome and names those that it knows;
* :class:`~airflow_relay.ledger.errors.RefusedActionError`: it makes no sense for this item;
* :class:`~airflow_relay.ledger.errors.LedgerNotReadyError`: the ledger does not answer.

Each text says the cure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Concatenate, Final, ParamSpec

from airflow_relay.core import breaker as breaker_rules
from airflow_relay.core.breaker import BreakerState, Step
from airflow_relay.core.item import Run
from airflow_relay.core.limits import Hold
from airflow_relay.core.pipeline import PipelineError
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import PriorityClass
from airflow_relay.ledger import (
    breakers,
    dead_letters,
    declarations,
    governing,
    interventions,
    items,
)
from airflow_relay.ledger.dead_letters import LetterFilter
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.errors import RefusedActionError
from airflow_relay.ledger.interventions import Intervened
from airflow_relay.ledger.store import Ledger

BATCH: Final = 50
"""Items that one transaction of a bulk action changes: dispatching goes on in between."""

_NAMED: Final = 20
"""Keys that a bulk action's result names."""


@dataclass(frozen=True, kw_only=True)
class ActionResult:
    """What an action did.

    :param changed: how many items, holds or breakers were changed; 0 when all was so already.
    :param text: for people.
    :param keys: the items that were changed, the first ones of many.
    :param problems: one sentence for each item of a bulk action that was left as it is.
    """

    changed: int
    text: str
    keys: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def redrive(
    ledger: Ledger,
    key: str,
    *,
    by: str,
    now: datetime,
    pipeline: str | None = None,
    stage: str | None = None,
    fresh: bool = False,
) -> ActionResult:
    """Let a dead or failed item run again, with a fresh budget of attempts.

    :param pipeline: needed when several pipelines have an item of this key.
    :param stage: another stage to begin at.
    :param fresh: agent jobs of the stage are asked anew, instead of using their kept results.
    """
    return _on_item(ledger, key, pipeline, interventions.redrive, by=by, now=now, stage=stage, fresh=fresh)


def rewind(
    ledger: Ledger,
    key: str,
    stage: str,
    *,
    by: str,
    now: datetime,
    pipeline: str | None = None,
    fresh: bool = False,
) -> ActionResult:
    """Send an item to a stage, whatever its state; its open runs are superseded and free their slots."""
    return _on_item(ledger, key, pipeline, interventions.rewind, stage, by=by, now=now, fresh=fresh)


def skip_stage(
    ledger: Ledger,
    key: str,
    *,
    by: str,
    now: datetime,
    pipeline: str | None = None,
    outcome: str | None = None,
    stage: str | None = None,
) -> ActionResult:
    """Go on behind the item's stage, by the route of ``outcome``: a router without a default asks for one.

    :param stage: the one that is meant; at another one the item is left alone, so that twice is once.
    """
    return _on_item(
        ledger, key, pipeline, interventions.skip_stage, by=by, now=now, outcome=outcome, stage=stage
    )


def discard(
    ledger: Ledger, key: str, *, by: str, now: datetime, pipeline: str | None = None, reason: str = ""
) -> ActionResult:
    """End an item for good."""
    return _on_item(ledger, key, pipeline, interventions.discard, by=by, now=now, reason=reason)


def move(
    ledger: Ledger,
    pipeline: str,
    from_stage: str,
    to_stage: str,
    *,
    by: str,
    now: datetime,
    keys: Collection[str] | None = None,
) -> ActionResult:
    """Carry the unfinished items of a stage, which may no longer exist, over to another one.

    :param keys: only these items; ``None`` for all that are there.
    """
    changed: list[str] = []
    while True:
        with ledger.dispatcher() as tx:
            declarations.load(tx, pipeline).stage(to_stage)
            if from_stage == to_stage:
                raise RefusedActionError(f"Items of {from_stage} are there already: name another stage.")
            chosen = interventions.in_stage(tx, pipeline, from_stage, keys=keys, limit=BATCH)
            for item_id in chosen:
                moved = interventions.move(tx, item_id, to_stage, by=by, now=now)
                changed.append(moved.item.key)
        if not chosen:
            text = f"{len(changed)} items of {pipeline} moved from {from_stage} to {to_stage}."
            return ActionResult(changed=len(changed), text=text, keys=tuple(changed[:_NAMED]))


def redrive_letters(
    ledger: Ledger,
    where: LetterFilter,
    *,
    by: str,
    now: datetime,
    stage: str | None = None,
    fresh: bool = False,
) -> ActionResult:
    """Redrive all dead letters that the filter matches ("all ``auth`` failures at write since 09:00")."""
    return _on_letters(
        ledger, where, "redriven", interventions.redrive, by=by, now=now, stage=stage, fresh=fresh
    )


def skip_letters(
    ledger: Ledger, where: LetterFilter, *, by: str, now: datetime, outcome: str | None = None
) -> ActionResult:
    """Skip the stage of all dead letters that the filter matches."""
    said = "sent on behind their stage"
    return _on_letters(ledger, where, said, interventions.skip_stage, by=by, now=now, outcome=outcome)


def discard_letters(
    ledger: Ledger, where: LetterFilter, *, by: str, now: datetime, reason: str = ""
) -> ActionResult:
    """Discard all dead letters that the filter matches."""
    return _on_letters(ledger, where, "discarded", interventions.discard, by=by, now=now, reason=reason)


def hold(
    ledger: Ledger, scope: str, *, reason: str, by: str, now: datetime, until: datetime | None = None
) -> ActionResult:
    """Grant nothing of a class (``"P2"``) or pipeline until ``until``, or until it is released.

    :raises RefusedActionError: there is no such class or pipeline, no reason was given, or the end is past.
    """
    if not reason.strip():
        raise RefusedActionError(
            f"Say why {scope} is held: the reason is shown beside everything that waits."
        )
    if until is not None and until <= now:
        raise RefusedActionError(f"The hold of {scope} would end at {until.isoformat()}, which is past.")
    with ledger.dispatcher() as tx:
        _check_scope(tx, scope)
        governing.set_hold(tx, Hold(scope=scope, reason=reason, until=until), by=by, now=now)
    end = f" until {until.isoformat()}" if until else ""
    return ActionResult(changed=1, text=f"{scope} is held{end}: {reason}")


def release(ledger: Ledger, scope: str) -> ActionResult:
    """End a hold that :func:`hold` set. Those of the Variable ``relay_hold`` end there."""
    with ledger.dispatcher() as tx:
        was_held = governing.release_hold(tx, scope)
    text = f"{scope} is released." if was_held else f"{scope} was not held by command or form."
    return ActionResult(changed=int(was_held), text=text)


def open_breaker(
    ledger: Ledger, pipeline: str, stage: str, *, reason: str, by: str, now: datetime
) -> ActionResult:
    """Pause grants to a stage; after the breaker's pause one item is the probe, as after an outage."""
    told = f"{reason} ({by})" if reason else by
    return _on_breaker(
        ledger, pipeline, stage, now, lambda b: breaker_rules.open_by_hand(b, now=now, reason=told)
    )


def close_breaker(
    ledger: Ledger, pipeline: str, stage: str, *, reason: str, by: str, now: datetime
) -> ActionResult:
    """Let grants to a stage flow again at once."""
    told = f"{reason} ({by})" if reason else by
    return _on_breaker(ledger, pipeline, stage, now, lambda b: breaker_rules.close_by_hand(b, reason=told))


def dispatch(ledger: Ledger, conditions: Conditions, *, now: datetime) -> list[Run]:
    """Grant what may run now. A task sends the grants at once; elsewhere the outbox keeps them."""
    return ledger.dispatch(conditions, now)


_P = ParamSpec("_P")
_Act = Callable[Concatenate[Tx, int, _P], Intervened]


def _on_item(
    ledger: Ledger, key: str, pipeline: str | None, act: _Act[_P], *args: _P.args, **given: _P.kwargs
) -> ActionResult:
    """Find the item, and act on it under the dispatcher's lock."""
    with ledger.dispatcher() as tx:
        done = act(tx, items.find(tx, key, pipeline).id, *args, **given)
    return ActionResult(
        changed=int(done.changed), text=done.text, keys=(done.item.key,) if done.changed else ()
    )


def _on_letters(
    ledger: Ledger, where: LetterFilter, what: str, act: _Act[_P], *args: _P.args, **given: _P.kwargs
) -> ActionResult:
    """In batches, each a transaction; a letter that cannot be acted on is told and passed over."""
    changed: list[str] = []
    problems: list[str] = []
    after = 0
    while True:
        with ledger.dispatcher() as tx:
            letters = dead_letters.listing(tx, where, limit=BATCH, after=after)
            for letter in letters:
                try:
                    # Each rule refuses before it changes anything, so the batch stays whole.
                    done = act(tx, letter.item_id, *args, **given)
                except (PipelineError, RefusedActionError) as error:
                    problems.append(f"{letter.key}: {error}")
                    continue
                if done.changed:
                    changed.append(letter.key)
        if not letters:
            break
        after = letters[-1].id
    text = f"{len(changed)} dead letters {what}"
    text += f"; {len(problems)} left as they are: {problems[0]}" if problems else "."
    return ActionResult(
        changed=len(changed), text=text, keys=tuple(changed[:_NAMED]), problems=tuple(problems)
    )


def _on_breaker(
    ledger: Ledger, pipeline: str, stage: str, now: datetime, rule: Callable[[breaker_rules.Breaker], Step]
) -> ActionResult:
    with ledger.dispatcher() as tx:
        declarations.load(tx, pipeline).stage(stage)
        before = breakers.load_all(tx).get((pipeline, stage), breaker_rules.Breaker())
        step = breakers.change(tx, pipeline, stage, now, rule)
    where = f"The breaker of {pipeline}.{stage}"
    if step.breaker == before:
        return ActionResult(changed=0, text=f"{where} was {before.state.value} already.")
    word = "closed" if step.breaker.state is BreakerState.CLOSED else "open"
    return ActionResult(changed=1, text=f"{where} is {word}. {step.reason}".rstrip())


def _check_scope(tx: Tx, scope: str) -> None:
    classes = [klass.value for klass in PriorityClass]
    known = list(declarations.load_all(tx))
    if scope not in classes and scope not in known:
        pipelines = ", ".join(known) or "none"
        raise RefusedActionError(
            f"{scope!r} is neither a class ({', '.join(classes)}) nor a pipeline ({pipelines})."
        )
