"""What the ledger promises about agent jobs, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from airflow_relay.ledger import items, job_sums, jobs
from airflow_relay.ledger.jobs import JobEnd, JobPhase, JobPlace, JobStep
from airflow_relay.ledger.results import Stored

REF = {"protocol": "responses", "id": "resp_1", "extra": {}}


@pytest.fixture
def run(drive):
    (run,) = drive.intake("item-1")
    drive.guard(run)
    return run


@pytest.fixture
def begin(drive, run):
    """Begin the task's job as an attempt."""

    def act(*, fingerprint="asked", attempt="try-1", map_index=-1, visit=1):
        place = JobPlace(item_id=run.item_id, stage="first", visit=visit, task_id="ask", map_index=map_index)
        with drive.ledger.write() as tx:
            return jobs.begin(
                tx,
                place,
                fingerprint=fingerprint,
                run=run.id,
                attempt=attempt,
                protocol="responses",
                conn_id="relay_agent",
                now=drive.later(seconds=1),
            )

    return act


@pytest.fixture
def write(drive):
    """Call a function of the ledger in a transaction of its own."""

    def act(function, *args, **kwargs):
        with drive.ledger.write() as tx:
            return function(tx, *args, **kwargs)

    return act


def end_of(phase=JobPhase.SUCCEEDED, **values):
    values.setdefault("stored", Stored({"text": "hi"}, None, 13) if phase is JobPhase.SUCCEEDED else None)
    return JobEnd(phase=phase, text=f"job {phase.value}", **values)


def test_the_intent_is_there_before_anything_is_sent(begin):
    begun = begin()
    assert (begun.step, begun.job.phase, begun.job.generation) == (JobStep.SUBMIT, JobPhase.INTENDED, 1)
    assert len(begun.job.key) == 32


def test_keys_differ_by_generation_map_index_visit_and_nothing_else(begin, write, drive):
    first = begin().job
    assert begin(attempt="try-2").job.key == first.key
    others = {begin(map_index=n).job.key for n in range(3)} | {begin(visit=2).job.key}
    write(jobs.ended, first.id, end_of(JobPhase.FAILED), now=drive.now)
    others.add(begin().job.key)
    assert len(others | {first.key}) == 6


def test_an_intent_without_a_reference_is_recovered_and_a_reference_attached_to(begin, write, drive):
    job = begin().job
    assert begin(attempt="try-2").step is JobStep.RECOVER
    write(jobs.submitted, job.id, ref=REF, now=drive.now)
    begun = begin(attempt="try-3")
    assert (begun.step, begun.job.id, begun.job.attempt) == (JobStep.ATTACH, job.id, "try-3")


@pytest.mark.parametrize(
    "phase",
    [
        JobPhase.FAILED,
        JobPhase.CANCELLED,
        JobPhase.LOST,
        JobPhase.REFUSED,
        JobPhase.INCOMPLETE,
        JobPhase.BLOCKED,
    ],
)
def test_a_job_that_ended_otherwise_than_well_has_a_successor(begin, write, drive, phase):
    job = begin().job
    write(jobs.ended, job.id, end_of(phase), now=drive.now)
    begun = begin(attempt="try-2")
    assert (begun.step, begun.job.generation, begun.replaced) == (JobStep.SUBMIT, 2, None)


def test_a_result_is_kept_for_the_same_input_and_no_other(begin, write, drive):
    job = begin().job
    write(jobs.ended, job.id, end_of(), now=drive.now)
    assert begin(attempt="try-2").step is JobStep.KEPT
    assert begin(fingerprint="another").step is JobStep.SUBMIT
    kept = begin(attempt="try-3")
    assert (kept.step, kept.job.id, kept.job.result) == (JobStep.KEPT, job.id, {"text": "hi"})


def test_a_running_job_is_replaced_when_its_input_changes(begin, write, drive):
    job = begin().job
    write(jobs.submitted, job.id, ref=REF, now=drive.now)
    begun = begin(fingerprint="another")
    assert begun.replaced is not None
    assert (begun.replaced.id, begun.job.generation) == (job.id, 2)
    assert begun.replaced.cancel_requested_at is not None


def test_the_first_end_stands(begin, write, drive):
    job = begin().job
    write(jobs.submitted, job.id, ref=REF, now=drive.now)
    write(jobs.ended, job.id, end_of(JobPhase.CANCELLED), now=drive.now)
    assert write(jobs.ended, job.id, end_of(), now=drive.now).phase is JobPhase.CANCELLED


def test_the_second_of_two_references_loses(begin, write, drive):
    job = begin().job
    write(jobs.submitted, job.id, ref=REF, now=drive.now)
    stored = write(jobs.submitted, job.id, ref={**REF, "id": "resp_2"}, now=drive.now)
    assert stored.ref["id"] == "resp_1"


def test_only_the_attempt_that_owns_a_job_may_cancel_it(begin, write, drive):
    job = begin().job
    write(jobs.submitted, job.id, ref=REF, now=drive.now)
    begin(attempt="try-2")
    assert not write(jobs.request_cancel, job.id, attempt="try-1", now=drive.now)
    assert write(jobs.request_cancel, job.id, attempt="try-2", now=drive.now)
    begun = begin(attempt="try-3")
    assert (begun.step, begun.job.generation) == (JobStep.SUBMIT, 2)


def test_a_job_that_has_ended_is_not_cancelled(begin, write, drive):
    job = begin().job
    write(jobs.ended, job.id, end_of(), now=drive.now)
    assert not write(jobs.request_cancel, job.id, attempt="try-1", now=drive.now)


def test_many_attempts_at_once_make_one_job(begin):
    with ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(lambda n: begin(attempt=f"try-{n}"), range(16)))
    assert {b.job.generation for b in begun} == {1}
    assert [b.step for b in begun].count(JobStep.SUBMIT) == 1


def test_attach_and_cancel_at_once_have_one_winner(begin, write, drive):
    job = begin().job
    write(jobs.submitted, job.id, ref=REF, now=drive.now)
    with ThreadPoolExecutor(2) as pool:
        cancel = pool.submit(write, jobs.request_cancel, job.id, attempt="try-1", now=drive.now)
        attach = pool.submit(begin, attempt="try-2")
    cancelled, begun = cancel.result(), attach.result()
    assert cancelled == (begun.step is JobStep.SUBMIT)


def test_a_dropped_result_is_listed_no_more_and_has_a_successor(begin, write, drive, run):
    job = begin().job
    write(jobs.ended, job.id, end_of(), now=drive.now)
    assert [j.id for j in write(jobs.kept_of_item, run.item_id)] == [job.id]
    assert write(jobs.drop_kept, run.item_id, now=drive.now, task_id="other") == 0
    assert write(jobs.drop_kept, run.item_id, now=drive.now, stage="first") == 1
    assert write(jobs.kept_of_item, run.item_id) == []
    assert begin(attempt="try-2").job.generation == 2


def test_usage_is_summed_by_job_stage_and_item(begin, write, drive, run):
    for index, cost in enumerate(("0.10", "0.20", None)):
        job = begin(map_index=index).job
        end = end_of(input_tokens=10, output_tokens=index, cost=cost)
        write(jobs.ended, job.id, end, now=drive.now)
    total = write(job_sums.usage_of_item, run.item_id)
    assert (total.jobs, total.input_tokens, total.output_tokens) == (3, 30, 3)
    assert total.cost == Decimal("0.30")
    assert job_sums.by_stage(write(jobs.of_item, run.item_id)) == {"first": total}


def test_each_step_is_a_line_of_the_items_log(begin, write, drive, run):
    job = begin().job
    write(jobs.submitted, job.id, ref=REF, now=drive.now)
    write(jobs.ended, job.id, end_of(), now=drive.now)
    told = [line for line in drive.log("item-1") if line.startswith("job:")]
    assert ["about to be" in told[0], "submitted" in told[1], "succeeded" in told[2]] == [True] * 3
    with drive.ledger.read() as tx:
        assert items.by_id(tx, run.item_id) == drive.item("item-1")
