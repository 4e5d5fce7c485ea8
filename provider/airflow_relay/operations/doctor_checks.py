"""The doctor's findings as pure rules over facts: what is wrong, and the cure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final

from airflow_relay.core.dispatch import check_shared_keys
from airflow_relay.core.pipeline import Pipeline, PipelineError


class Grade(str, Enum):
    """How bad a finding is; only a problem makes the doctor's answer negative."""

    OK = "ok"
    ADVICE = "advice"  # works, and could work better
    PROBLEM = "problem"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the screen.

    :param cure: what to do; empty when there is nothing to do.
    """

    area: str
    grade: Grade
    text: str
    cure: str = ""


def ok(area: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(area=area, grade=Grade.OK, text=text)


def advice(area: str, text: str, cure: str) -> Finding:
    """It works, and could work better."""
    return Finding(area=area, grade=Grade.ADVICE, text=text, cure=cure)


def problem(area: str, text: str, cure: str) -> Finding:
    """It does not work, or not for long."""
    return Finding(area=area, grade=Grade.PROBLEM, text=text, cure=cure)


SETTLED: Final = timedelta(minutes=10)
"""Two ticks: nothing that is free to go should wait for longer."""

_LOOP_OVERHEAD_S: Final = 0.07
"""What a scheduler's loop took beside its sleep, on two cores with 300 and with 2,000 parked runs."""

SLOW_STEP_S: Final = 10.0
"""A step from task to task that takes so long is a problem: a stage has several."""


def step_latency(running: int, *, per_loop: int, idle_sleep: float) -> float:
    """Seconds from one task of a run to the next, when so many runs are RUNNING.

    The scheduler looks at ``per_loop`` running runs in each of its loops, the longest unseen first, whether
    they have anything to do or not.
    """
    loops = max(1, math.ceil(running / max(1, per_loop)))
    return loops * (idle_sleep + _LOOP_OVERHEAD_S)


def check_latency(running: int, *, per_loop: int, idle_sleep: float) -> Finding:
    """Whether RUNNING runs slow down every step of every run."""
    seconds = step_latency(running, per_loop=per_loop, idle_sleep=idle_sleep)
    text = f"{running} runs are RUNNING in Airflow: a step from task to task takes about {seconds:.1f} s"
    if seconds < SLOW_STEP_S:
        return ok("latency", text)
    return problem(
        "latency",
        text,
        "lower 'airflow.runs' in the Variable relay_limits, lower [scheduler] scheduler_idle_sleep_time",
    )


@dataclass(frozen=True, kw_only=True)
class DagFacts:
    """What Airflow says of a DAG that Relay needs."""

    is_missing: bool = False
    is_paused: bool = False
    has_import_errors: bool = False


def check_dags(expected: Iterable[str], found: Mapping[str, DagFacts]) -> list[Finding]:
    """Whether each DAG is there, imports and is unpaused."""
    names = list(dict.fromkeys(expected))
    facts = {name: found.get(name, DagFacts(is_missing=True)) for name in names}
    missing = [n for n, f in facts.items() if f.is_missing]
    broken = [n for n, f in facts.items() if f.has_import_errors and not f.is_missing]
    paused = [n for n, f in facts.items() if f.is_paused and not f.is_missing]
    findings = [
        problem("dags", f"{_listed(names_)} {what}", cure)
        for names_, what, cure in (
            (
                missing,
                "not in Airflow",
                (
                    "deploy the file that builds it (operations_dags() for relay__…), or `airflow relay "
                    "move` the items of a stage that is no more"
                ),
            ),
            (broken, "with import errors", "see `airflow dags list-import-errors`"),
            (paused, "paused", f"airflow dags unpause {paused[0] if paused else ''}"),
        )
        if names_
    ]
    return findings or [ok("dags", f"all {len(names)} DAGs are there, import and are unpaused")]


def check_import_errors(errors: Sequence[tuple[str, str]]) -> list[Finding]:
    """Files that do not import, whichever DAGs they were to hold."""
    return [
        problem("dags", f"{file} does not import: {error}", "fix the file; `airflow dags list-import-errors`")
        for file, error in errors
    ]


def check_triggerer(alive: int, *, triggers: int, capacity: int) -> Finding:
    """Whether deferred tasks have somebody to wait for them."""
    room = alive * capacity
    if not alive:
        return problem(
            "triggerer",
            f"no triggerer is alive, and {triggers} deferred tasks wait for one",
            "start `airflow triggerer`",
        )
    text = f"{alive} alive, {triggers} of {room} triggers in use"
    if triggers > 0.8 * room:
        return problem("triggerer", text, "start another triggerer, or raise [triggerer] capacity")
    return ok("triggerer", text)


def check_component(area: str, alive: int, cure: str) -> Finding:
    """Whether at least one process of a kind is alive."""
    return ok(area, f"{alive} alive") if alive else problem(area, "none is alive", cure)


def check_waiting(waiting: Mapping[tuple[str, str], str], overdue: int) -> list[Finding]:
    """Who waits for what, and whether something that could go does not.

    :param waiting: (pipeline, stage) → why the first ready item there waits.
    :param overdue: items that nothing stops and that have waited for longer than :data:`SETTLED`.
    """
    findings = [ok("waiting", f"{pipeline}.{stage}: {why}") for (pipeline, stage), why in waiting.items()]
    if overdue:
        findings.append(
            problem(
                "waiting",
                f"{overdue} items could go and have waited for more than {SETTLED.seconds // 60} min",
                "see that relay__dispatch runs; `airflow relay dispatch` starts them now",
            )
        )
    return findings or [ok("waiting", "no item waits")]


def check_idle_keys(pipelines: Iterable[Pipeline], limits: Mapping[str, int]) -> list[Finding]:
    """Idle pipelines (P3) that share a limited key with urgent ones; no single file can see that.

    :param limits: those of ``relay_limits``.
    """
    try:
        check_shared_keys(pipelines, limits)
    except PipelineError as error:
        return [
            problem("capacity", said, "or take the limit off the key") for said in str(error).splitlines()
        ]
    return []


def check_stranded(stranded: Mapping[tuple[str, str], int]) -> list[Finding]:
    """Items in a stage that their pipeline no longer declares."""
    return [
        problem(
            "stranded",
            f"{count} items are in {pipeline}.{stage}, which is no stage any more",
            f"airflow relay move {pipeline} {stage} <stage>",
        )
        for (pipeline, stage), count in stranded.items()
    ]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Airflow's settings that decide about the gap between two stages."""

    idle_sleep: float
    per_loop: int
    min_heartbeat: float
    reparse: float
    is_preloaded: bool


def check_settings(settings: Settings) -> list[Finding]:
    """Where the configuration differs from the recommended one; each line is waiting that could go."""
    findings = []
    for value, best, name in (
        (settings.idle_sleep, 0.1, "[scheduler] scheduler_idle_sleep_time"),
        (settings.per_loop, 10, "[scheduler] max_dagruns_per_loop_to_schedule"),
        (settings.min_heartbeat, 1, "[workers] min_heartbeat_interval"),
    ):
        if value > best:
            findings.append(advice("settings", f"{name} is {value:g}", f"set it to {best:g}"))
    if settings.reparse < 300:
        name = "[dag_processor] min_file_process_interval"
        findings.append(advice("settings", f"{name} is {settings.reparse:g}", "set it to 300"))
    if not settings.is_preloaded:
        findings.append(
            advice(
                "settings",
                "task processes import the SDK and Relay anew each time",
                "put `from airflow_relay.local_settings import *` into "
                "$AIRFLOW_HOME/config/airflow_local_settings.py",
            )
        )
    return findings or [ok("settings", "as recommended")]


def _listed(names: Collection[str], most: int = 5) -> str:
    shown = ", ".join(list(names)[:most])
    more = len(names) - most
    verb = "is" if len(names) == 1 else "are"
    return f"{shown}{f' and {more} more' if more > 0 else ''} {verb}"
