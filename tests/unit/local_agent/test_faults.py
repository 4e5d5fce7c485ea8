from __future__ import annotations

import pytest

from airflow_relay.local_agent.faults import (
    JOB_KINDS,
    SERVER_KINDS,
    SUBMIT_KINDS,
    TRANSPORT_KINDS,
    Fault,
    FaultKind,
    FaultPlan,
    InvalidFaultError,
    Point,
    parse_fault,
    parse_faults,
    take_bound,
)


def test_the_short_form_says_everything():
    fault = parse_fault("http_status:point=submit,status=429,retry_after=2,times=3")
    assert fault == Fault(FaultKind.HTTP_STATUS, Point.SUBMIT, times=3, status=429, retry_after="2")
    assert [fault.kind for fault in parse_faults("lost; slow:seconds=0.5")] == [
        FaultKind.LOST,
        FaultKind.SLOW,
    ]


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_survives_its_record_and_belongs_to_one_group(kind):
    fault = Fault(kind, Point.CANCEL, times=2, where={"job": "write"})
    assert Fault.from_record(fault.to_record()) == fault
    groups = [TRANSPORT_KINDS, JOB_KINDS, SUBMIT_KINDS, SERVER_KINDS]
    assert sum(kind in group for group in groups) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "'nonsense' is not a valid FaultKind; kinds: http_status"),
        ("html:point=nowhere", "points: submit"),
        ("html:oops", "is not name=value"),
        ("html:times=many", "needs a number"),
        ("html:colour=red", "unknown setting 'colour'"),
    ],
)
def test_a_wrong_switch_is_explained(text, message):
    with pytest.raises(InvalidFaultError, match=message):
        parse_fault(text)


def test_a_counted_fault_strikes_that_often_and_is_gone():
    plan = FaultPlan([Fault(FaultKind.HTML, Point.POLL, times=2)])
    assert plan.take_transport(Point.SUBMIT, {}) is None
    assert [bool(plan.take_transport(Point.POLL, {})) for _ in range(3)] == [True, True, False]
    assert plan.records() == []


def test_a_fault_strikes_only_where_its_conditions_hold():
    plan = FaultPlan([Fault(FaultKind.HTML, Point.POLL, where={"job": "write", "item": "a"})])
    assert plan.take_transport(Point.POLL, {"job": "write", "item": "b"}) is None
    assert plan.take_transport(Point.POLL, {"job": "write", "item": "a"}) is not None


def test_a_request_s_own_fault_is_counted_over_repeats_of_the_request():
    plan = FaultPlan()
    own = [Fault(FaultKind.CLOSE, Point.SUBMITTED, times=1)]
    strikes = [plan.take_own(own, Point.SUBMITTED, request) for request in ("a", "a", "b")]
    assert [bool(fault) for fault in strikes] == [True, False, True]


def test_a_bound_transport_fault_is_counted_down_in_the_job_s_record():
    records = [Fault(FaultKind.HTML, Point.POLL, times=1).to_record()]
    fault, records = take_bound(records, Point.POLL)
    assert fault is not None
    assert take_bound(records, Point.POLL)[0] is None
