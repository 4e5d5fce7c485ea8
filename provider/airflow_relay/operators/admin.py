"""The actions of the command line as one task with a form, for Airflows that have no free command line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from airflow_relay.clock import utcnow
from airflow_relay.hooks.conditions import read_conditions
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger.dead_letters import LetterFilter
from airflow_relay.ledger.errors import RefusedActionError
from airflow_relay.ledger.store import Ledger
from airflow_relay.operations import actions, cleaning
from airflow_relay.operations.actions import ActionResult
from airflow_relay.operators.trigger import RelayTrigger

log: Final = logging.getLogger(__name__)


class Action(str, Enum):
    """What the form offers."""

    REDRIVE = "redrive"
    SKIP_STAGE = "skip stage"
    DISCARD = "discard"
    REWIND = "rewind"
    MOVE = "move"
    HOLD = "hold"
    RELEASE = "release"
    OPEN_BREAKER = "open breaker"
    CLOSE_BREAKER = "close breaker"
    DISPATCH = "dispatch"
    CLEAN = "clean"


class AdminAction(RelayTrigger):
    """Do what the form says, then dispatch and send at once. The form's fields are the DAG's params."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Returns ``{"changed", "text", "keys", "problems", "sent"}``.

        :raises RefusedActionError: a field is missing, or the action makes no sense; the text says the cure.
        """
        form = Form(context["params"], by=_who(context), now=utcnow())
        ledger = get_ledger()
        done = perform(ledger, form)
        log.info("%s", done.text)
        now = utcnow()
        grants = ledger.dispatch(read_conditions(ledger, now), now)
        sent = self.send(ledger, grants)
        return {
            "changed": done.changed,
            "text": done.text,
            "keys": list(done.keys),
            "problems": list(done.problems),
            "sent": len(sent),
        }


def _who(context: Mapping[str, Any]) -> str:
    return str(getattr(context["dag_run"], "triggering_user_name", None) or "relay__admin")


class Form:
    """The form's fields, with the ones that an action needs checked by name.

    :param params: ``action``, ``item``, ``pipeline``, ``stage``, ``to_stage``, ``outcome``, ``error_class``,
        ``since_hours``, ``scope``, ``hours``, ``reason``, ``fresh``, ``days``; empty ones do not matter.
    """

    def __init__(self, params: Mapping[str, Any], *, by: str, now: datetime) -> None:
        self.values = {name: value for name, value in params.items() if value not in (None, "")}
        self.by = by
        self.now = now

    @property
    def action(self) -> Action:
        """:raises RefusedActionError: there is no such action; names those that there are."""
        given = self.need("action")
        try:
            return Action(given)
        except ValueError:
            known = ", ".join(action.value for action in Action)
            raise RefusedActionError(f"There is no action {given!r}. Choose one of: {known}.") from None

    def get(self, name: str) -> Any:
        """The field, or ``None`` when it is empty."""
        return self.values.get(name)

    def need(self, name: str) -> str:
        """The field.

        :raises RefusedActionError: it is empty.
        """
        value = self.get(name)
        if value is None:
            raise RefusedActionError(f"Fill in the field {name!r} for this action.")
        return str(value)

    @property
    def letters(self) -> LetterFilter:
        """The dead letters that the form describes, for an action without an item."""
        hours = self.get("since_hours")
        return LetterFilter(
            pipeline=self.get("pipeline"),
            stage=self.get("stage"),
            error_class=self.get("error_class"),
            since=None if hours is None else self.now - timedelta(hours=float(hours)),
        )


def perform(ledger: Ledger, form: Form) -> ActionResult:
    """Carry out one action; see :mod:`airflow_relay.operations.actions` for the errors."""
    return _ACTIONS[form.action](ledger, form)


def _redrive(ledger: Ledger, form: Form) -> ActionResult:
    common: dict[str, Any] = {"by": form.by, "now": form.now, "fresh": bool(form.get("fresh"))}
    if form.get("item") is None:
        return actions.redrive_letters(ledger, form.letters, stage=form.get("to_stage"), **common)
    return actions.redrive(
        ledger, form.need("item"), pipeline=form.get("pipeline"), stage=form.get("to_stage"), **common
    )


def _skip_stage(ledger: Ledger, form: Form) -> ActionResult:
    common: dict[str, Any] = {"by": form.by, "now": form.now, "outcome": form.get("outcome")}
    if form.get("item") is None:
        return actions.skip_letters(ledger, form.letters, **common)
    return actions.skip_stage(
        ledger, form.need("item"), pipeline=form.get("pipeline"), stage=form.get("stage"), **common
    )


def _discard(ledger: Ledger, form: Form) -> ActionResult:
    common: dict[str, Any] = {"by": form.by, "now": form.now, "reason": form.get("reason") or ""}
    if form.get("item") is None:
        # A form sent off half-filled must not throw everything away.
        form.need("pipeline")
        return actions.discard_letters(ledger, form.letters, **common)
    return actions.discard(ledger, form.need("item"), pipeline=form.get("pipeline"), **common)


def _rewind(ledger: Ledger, form: Form) -> ActionResult:
    return actions.rewind(
        ledger,
        form.need("item"),
        form.need("to_stage"),
        pipeline=form.get("pipeline"),
        fresh=bool(form.get("fresh")),
        by=form.by,
        now=form.now,
    )


def _move(ledger: Ledger, form: Form) -> ActionResult:
    item = form.get("item")
    return actions.move(
        ledger,
        form.need("pipeline"),
        form.need("stage"),
        form.need("to_stage"),
        keys=None if item is None else [item],
        by=form.by,
        now=form.now,
    )


def _hold(ledger: Ledger, form: Form) -> ActionResult:
    hours = form.get("hours")
    until = None if hours is None else form.now + timedelta(hours=float(hours))
    return actions.hold(
        ledger, form.need("scope"), reason=form.need("reason"), until=until, by=form.by, now=form.now
    )


def _release(ledger: Ledger, form: Form) -> ActionResult:
    return actions.release(ledger, form.need("scope"))


def _open_breaker(ledger: Ledger, form: Form) -> ActionResult:
    return actions.open_breaker(
        ledger,
        form.need("pipeline"),
        form.need("stage"),
        reason=form.get("reason") or "",
        by=form.by,
        now=form.now,
    )


def _close_breaker(ledger: Ledger, form: Form) -> ActionResult:
    return actions.close_breaker(
        ledger,
        form.need("pipeline"),
        form.need("stage"),
        reason=form.get("reason") or "",
        by=form.by,
        now=form.now,
    )


def _dispatch(_ledger: Ledger, _form: Form) -> ActionResult:
    return ActionResult(changed=0, text="Dispatched.")  # as after every action


def _clean(ledger: Ledger, form: Form) -> ActionResult:
    days = float(form.need("days"))
    removed = cleaning.clean(ledger, form.now - timedelta(days=days), form.now)
    said = ", ".join(f"{number} {what.replace('_', ' ')}" for what, number in removed.items())
    return ActionResult(changed=removed["items"], text=f"Removed what is older than {days:g} days: {said}.")


_ACTIONS: Final[Mapping[Action, Callable[[Ledger, Form], ActionResult]]] = {
    Action.REDRIVE: _redrive,
    Action.SKIP_STAGE: _skip_stage,
    Action.DISCARD: _discard,
    Action.REWIND: _rewind,
    Action.MOVE: _move,
    Action.HOLD: _hold,
    Action.RELEASE: _release,
    Action.OPEN_BREAKER: _open_breaker,
    Action.CLOSE_BREAKER: _close_breaker,
    Action.DISPATCH: _dispatch,
    Action.CLEAN: _clean,
}
