"""Whether a declaration's fields are of the types that the other checks, and the ledger, count on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_relay.core.pipeline import PipelineError, Stage, Window
from airflow_relay.core.states import PriorityClass

if TYPE_CHECKING:
    from airflow_relay.core.pipeline import Pipeline


def check_types(pipeline: Pipeline) -> None:
    """Refuse fields of a wrong type.

    :raises PipelineError: lists all of them, one a line, each with its stage and what to give instead.
    """
    problems = list(_of_pipeline(pipeline))
    if problems:
        raise PipelineError(f"Pipeline {pipeline.name!r}: " + "\n".join(problems))


def _of_pipeline(pipeline: Pipeline) -> Iterator[str]:
    if not isinstance(pipeline.timezone, str):
        yield f"timezone={pipeline.timezone!r}: give its name, such as 'UTC' or 'Europe/Berlin'."
    classes = [klass.value for klass in PriorityClass]
    if pipeline.klass not in classes:
        yield f"klass={pipeline.klass!r}: give one of {', '.join(classes)}."
    if not isinstance(pipeline.limits, Mapping):
        yield f"limits={pipeline.limits!r}: give a mapping of capacity keys and numbers."
    if not isinstance(pipeline.description, str):
        yield f"description={pipeline.description!r}: give a text, or leave it out."
    if not isinstance(pipeline.stages, list | tuple):
        yield f"stages={pipeline.stages!r}: give a list of Stage objects."
        return
    for stage in pipeline.stages:
        if isinstance(stage, Stage):
            yield from _of_stage(stage, f"stage {stage.name!r}")
        else:
            yield f"stages: {stage!r} is no Stage: give a list of Stage objects."


def _of_stage(stage: Stage, where: str) -> Iterator[str]:
    if not isinstance(stage.status, str):
        yield f"{where}: status={stage.status!r}: give a word, or leave it out."
    if not isinstance(stage.to, str | Mapping):
        yield f"{where}: to={stage.to!r}: give a stage's name, END, DISCARD, PERSON, or a table of outcomes."
    if not _is_list_of_texts(stage.keys):
        yield f"{where}: keys={stage.keys!r}: give a tuple of names, one as ('agents',), with a comma."
    if not isinstance(stage.fallback, str | list | tuple):
        yield f"{where}: fallback={stage.fallback!r}: give a cron expression, or a tuple of them."
    if stage.window is not None and not _is_window(stage.window):
        yield f"{where}: window={stage.window!r}: give Window(start='06:00', end='22:00'), or leave it out."
    if not isinstance(stage.outcome_field, str) or not stage.outcome_field:
        yield f"{where}: outcome_field={stage.outcome_field!r}: give a dotted path, such as 'data.verdict'."


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def _is_window(value: object) -> bool:
    return isinstance(value, Window) and isinstance(value.start, str) and isinstance(value.end, str)
