"""Named points at which a test may kill this process, to show that nothing is lost there."""

from __future__ import annotations

import os
import signal
from enum import Enum
from pathlib import Path
from typing import Final

from airflow_relay.clock import test_switch

CRASH_VARIABLE: Final = "RELAY_CRASH_AT"
"""``point`` kills each time; ``point@file`` kills once: the file is the memory of it. ``<file`` stands for
the text of a file, which may come and go while the process runs."""


class CrashPoint(str, Enum):
    """The places between two steps of which only the first is durable."""

    GUARD_STARTED = "guard.started"
    HAND_OFF_BEFORE_COMMIT = "hand_off.before_commit"
    HAND_OFF_AFTER_COMMIT = "hand_off.after_commit"
    HAND_OFF_AFTER_TRIGGER = "hand_off.after_trigger"
    SWEEP_CHARGED = "sweep.charged"
    TICK_GRANTED = "tick.granted"
    JOB_INTENDED = "job.intended"
    JOB_SUBMITTED = "job.submitted"
    JOB_RECORDED = "job.recorded"
    JOB_DEFERRING = "job.deferring"
    JOB_RESUMED = "job.resumed"
    JOB_ENDING = "job.ending"
    JOB_ENDED = "job.ended"
    TRIGGER_POLLED = "trigger.polled"
    TRIGGER_SEEN = "trigger.seen"
    TRIGGER_TOLD = "trigger.told"
    TRACKS_RECORDED = "tracks.recorded"
    TRACKS_TRIGGERED = "tracks.triggered"
    BARRIER_LOOKED = "barrier.looked"
    BARRIER_POLLED = "barrier.polled"


def crash_point(point: CrashPoint) -> None:
    """Die here by SIGKILL when a test asks for it."""
    wanted = test_switch(CRASH_VARIABLE)
    if wanted is None:
        return
    name, _, memory = _armed(wanted).partition("@")
    if name != point.value:
        return
    if memory:
        try:
            Path(memory).touch(exist_ok=False)
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)


def _armed(wanted: str) -> str:
    if not wanted.startswith("<"):
        return wanted
    try:
        return Path(wanted[1:]).read_text()
    except FileNotFoundError:
        return ""
