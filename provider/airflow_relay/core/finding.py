"""What the recovery sweep finds about an item, and what it decides: values alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from airflow_relay.core.item import Item, Run
from airflow_relay.core.states import RunResult, WaitReason


class RunLiveness(str, Enum):
    """What Airflow's own task states say of an item's open run."""

    NO_RUN = "no_run"  # the item holds no open run: there is nothing to ask Airflow about
    NOT_ASKED = "not_asked"  # more than the sweep can act on, or Airflow gave no answer
    ALIVE = "alive"  # queued, scheduled, running, deferred, up for retry or reschedule, awaiting input
    ALIVE_LATE = "alive_late"  # alive beyond the stage's expected time
    QUEUED_PAUSED = "queued_paused"  # waits in Airflow behind a paused DAG
    UNCONFIRMED = "unconfirmed"  # granted, and Airflow does not have the run (yet)
    SUCCEEDED_UNTOLD = "succeeded_untold"  # ended well by Airflow's word; hand_off never told the ledger
    FAILED_UNTOLD = "failed_untold"  # failed by Airflow's word (a worker lost, a state set by hand)
    GONE = "gone"  # Airflow had the run and no longer knows it


RECORDED_AS: Final[Mapping[RunLiveness, RunResult]] = {
    RunLiveness.SUCCEEDED_UNTOLD: RunResult.SUCCESS,
    RunLiveness.FAILED_UNTOLD: RunResult.FAILED,
    RunLiveness.GONE: RunResult.LOST,
}
"""What reconciliation, by tick or sweep, writes into the row of a run that ended without telling."""


class RecoveryAction(str, Enum):
    """What the sweep does about an item. Only REFIRE costs the item an attempt, once it is granted."""

    LEAVE = "leave"
    ALERT_LATE = "alert_late"
    REFIRE = "refire"  # ready for the same stage again; its grant is charged as an attempt
    RESEND = "resend"  # request the run of the present grant from Airflow once more
    RECORD_SUCCESS = "record_success"  # hand off on the run's behalf, by the default route
    DEAD_LETTER = "dead_letter"  # with one escalation alert
    WAIT_COOLDOWN = "wait_cooldown"
    SKIP_PAUSED = "skip_paused"
    SKIP_BREAKER = "skip_breaker"
    SKIP_SLOT = "skip_slot"
    EXCLUDED = "excluded"
    OVER_SWEEP_CAP = "over_sweep_cap"
    DRY_RUN = "dry_run"


ACTING: Final = frozenset(
    {
        RecoveryAction.ALERT_LATE,
        RecoveryAction.REFIRE,
        RecoveryAction.RESEND,
        RecoveryAction.RECORD_SUCCESS,
        RecoveryAction.DEAD_LETTER,
    }
)
"""Actions that change or send something; the others are reasons why nothing is done."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An item with all that the rules ask about it.

    :param run: the item's open run, or ``None``.
    :param obstacle: why the dispatcher could not grant the item's stage now; ``None`` when nothing is in the
        way. For a ready item it is the reason for which it waits.
    :param timezone: the pipeline's, whose calendar day limits the attempts.
    :param late_alerted: this run's lateness was alerted before.
    """

    item: Item
    liveness: RunLiveness
    run: Run | None = None
    obstacle: WaitReason | None = None
    timezone: str = "UTC"
    late_alerted: bool = False


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the sweep does about one item, and why in plain words.

    :param epoch: the item's epoch when it was decided about. Perform the action only while the item still has
        this epoch and has not moved: then two sweeps, or a sweep and a person, act once.
    :param next_allowed_at: before this instant the same question has the same answer; ``None`` when it is not
        a matter of time.
    :param record: first close the run with this result: it ended without telling.
    :param would: on a dry run, the action that was held back.
    """

    item_id: int
    pipeline: str
    key: str
    stage: str
    epoch: int
    action: RecoveryAction
    reason: str
    next_allowed_at: datetime | None = None
    record: RunResult | None = None
    would: RecoveryAction | None = None

    @property
    def charges(self) -> bool:
        """The action costs the item an attempt: its grant sets what :func:`recovery.charge` says."""
        return self.action is RecoveryAction.REFIRE

    @property
    def escalates(self) -> bool:
        """One alert is due. A dead item is left alone from then on, so that it is one alert per entry."""
        return self.action is RecoveryAction.DEAD_LETTER

    def to_json(self) -> dict[str, Any]:
        """JSON for XCom; the instant as ISO text."""
        at = self.next_allowed_at
        return {
            "item_id": self.item_id,
            "pipeline": self.pipeline,
            "key": self.key,
            "stage": self.stage,
            "epoch": self.epoch,
            "action": self.action.value,
            "reason": self.reason,
            "next_allowed_at": None if at is None else at.isoformat(),
            "record": None if self.record is None else self.record.value,
            "would": None if self.would is None else self.would.value,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Decision:
        """The inverse of :meth:`to_json`."""
        at, record, would = data["next_allowed_at"], data["record"], data["would"]
        return cls(
            item_id=data["item_id"],
            pipeline=data["pipeline"],
            key=data["key"],
            stage=data["stage"],
            epoch=data["epoch"],
            action=RecoveryAction(data["action"]),
            reason=data["reason"],
            next_allowed_at=None if at is None else datetime.fromisoformat(at),
            record=None if record is None else RunResult(record),
            would=None if would is None else RecoveryAction(would),
        )
