"""Fault switches: the reference server misbehaves on demand, as servers in the field do.

A fault has a kind; *transport* kinds act on a request at a point (before or after the job is created, at a
poll, at a cancel), *job* kinds are bound to a job when it is created and shape its life and its replies.
They are set for the whole server (``--fault`` or ``POST /admin/faults``) or for one job, by the request's
``metadata["fault"]``. All of it works only with ``--allow-faults``.

The short form is ``kind`` or ``kind:name=value,name=value``; several are separated by ``;``::

    http_status:point=poll,status=429,retry_after=2,times=3
    hang:point=submitted,seconds=60
    failed:code=server_error,message=upstream broke
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Point(str, Enum):
    """Where a transport fault strikes."""

    SUBMIT = "submit"
    """POST, before the job is created."""
    SUBMITTED = "submitted"
    """POST, after the job was created: the client cannot know that it exists."""
    POLL = "poll"
    CANCEL = "cancel"


class FaultKind(str, Enum):
    """What goes wrong. The first group are transport kinds, the second job kinds, the third server-wide."""

    HTTP_STATUS = "http_status"
    """Answer ``status`` (default 500), with ``Retry-After: retry_after`` where given."""
    HTML = "html"
    """Answer 200 with a proxy's HTML page."""
    EMPTY_BODY = "empty_body"
    """Answer 200 with no body."""
    CLOSE = "close"
    """Close the connection without an answer."""
    HANG = "hang"
    """Hold the connection for ``seconds`` (default 60), then close it without an answer."""

    UNKNOWN_STATUS = "unknown_status"
    """Polls of the unfinished job say status ``text`` (default ``thinking``); it ends as usual."""
    SLOW = "slow"
    """Takes ``seconds`` longer (default 1)."""
    STUCK_QUEUED = "stuck_queued"
    """Stays queued for ever (vLLM when the generator raises)."""
    FAILED = "failed"
    """Ends failed with error ``code`` and ``message``."""
    FAILED_WITHOUT_ERROR = "failed_without_error"
    """Ends failed, ``error`` stays null (vLLM)."""
    FAILED_AS_500 = "failed_as_500"
    """Ends failed, and polls answer HTTP 500 with the whole response object (OpenClaw)."""
    COMPLETED_EMPTY = "completed_empty"
    """Ends completed with no output and null usage (LiteLLM after an upstream disconnect)."""
    ERROR_TEXT = "error_text"
    """Ends completed, and the text is an error message, ``text`` (OpenClaw)."""
    REFUSAL = "refusal"
    """Ends completed with a refusal part, ``text``."""
    FUNCTION_CALL_ONLY = "function_call_only"
    """Ends completed with nothing but a function call for the client."""
    INCOMPLETE = "incomplete"
    """Ends incomplete; ``text`` is the reason (default ``max_output_tokens``)."""
    HUGE_REPLY = "huge_reply"
    """Ends completed with ``size`` bytes of text (default 50 MB)."""
    LOST = "lost"
    """404 at polls and cancels after the job was accepted (a restart without persistence)."""
    CANCEL_FLAP = "cancel_flap"
    """After a cancel the first poll says cancelled, later ones completed (Azure)."""
    SLOW_CANCEL = "slow_cancel"
    """A cancel is answered after ``seconds`` (default 20)."""
    CANCEL_REJECTED = "cancel_rejected"
    """Cancels answer ``status`` (default 409) and change nothing (OGX, vLLM)."""
    BACKGROUND_REJECTED = "background_rejected"
    """``background: true`` is answered with 400 (vLLM without store, OpenClaw)."""
    BACKGROUND_IGNORED = "background_ignored"
    """``background: true`` is accepted and ignored: POST blocks and returns the finished job (Furiosa)."""

    CAPACITY = "capacity"
    """POST answers 429 while ``capacity`` jobs are unfinished; ``Retry-After: retry_after`` (default 1)."""
    IGNORE_IDEMPOTENCY_KEY = "ignore_idempotency_key"
    """The header is ignored, as the published API does: a second POST is a second job."""


TRANSPORT_KINDS = frozenset(
    {FaultKind.HTTP_STATUS, FaultKind.HTML, FaultKind.EMPTY_BODY, FaultKind.CLOSE, FaultKind.HANG}
)
SERVER_KINDS = frozenset({FaultKind.CAPACITY, FaultKind.IGNORE_IDEMPOTENCY_KEY})
SUBMIT_KINDS = frozenset({FaultKind.BACKGROUND_REJECTED, FaultKind.BACKGROUND_IGNORED})
JOB_KINDS = frozenset(FaultKind) - TRANSPORT_KINDS - SERVER_KINDS - SUBMIT_KINDS

DEFAULT_SECONDS = {FaultKind.HANG: 60.0, FaultKind.SLOW: 1.0, FaultKind.SLOW_CANCEL: 20.0}
DEFAULT_STATUS = {FaultKind.HTTP_STATUS: 500, FaultKind.CANCEL_REJECTED: 409}
DEFAULT_SIZE = 50_000_000


class InvalidFaultError(ValueError):
    """A fault specification that cannot be understood; the text says why."""


@dataclass(frozen=True)
class Fault:
    """One switch. Fields that a kind does not use are ignored."""

    kind: FaultKind
    point: Point = Point.POLL
    """Transport kinds only."""
    times: int | None = None
    """How often it strikes (jobs for job kinds, requests otherwise); None: always."""
    status: int | None = None
    seconds: float | None = None
    retry_after: str | None = None
    """Sent as it stands: seconds or an HTTP date."""
    code: str = "server_error"
    message: str = "The server had an error while processing your request."
    text: str | None = None
    size: int = DEFAULT_SIZE
    capacity: int = 1
    where: dict[str, str] = field(default_factory=dict)
    """Strikes only where these hold: id, job, model, idempotency_key, or a metadata name."""

    @property
    def effective_seconds(self) -> float:
        return DEFAULT_SECONDS.get(self.kind, 0.0) if self.seconds is None else self.seconds

    @property
    def effective_status(self) -> int:
        return self.status or DEFAULT_STATUS.get(self.kind, 500)

    def to_record(self) -> dict[str, Any]:
        record = asdict(self)
        return {**record, "kind": self.kind.value, "point": self.point.value}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Fault:
        """:raises InvalidFaultError: unknown kind, point or setting."""
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(record) - known)
        if unknown:
            raise InvalidFaultError(
                f"unknown setting {unknown[0]!r} of a fault; there are: {', '.join(sorted(known))}"
            )
        try:
            return cls(
                **{
                    **record,
                    "kind": FaultKind(record.get("kind")),
                    "point": Point(record.get("point", Point.POLL.value)),
                }
            )
        except ValueError as error:
            kinds = ", ".join(kind.value for kind in FaultKind)
            points = ", ".join(point.value for point in Point)
            raise InvalidFaultError(f"{error}; kinds: {kinds}; points: {points}") from error


_NUMBERS: dict[str, type[int | float]] = {
    "times": int,
    "status": int,
    "size": int,
    "capacity": int,
    "seconds": float,
}


def parse_fault(text: str) -> Fault:
    """One fault from its short form.

    :raises InvalidFaultError: naming the part that is wrong.
    """
    kind, _, settings = text.strip().partition(":")
    record: dict[str, Any] = {"kind": kind}
    for pair in filter(None, settings.split(",")):
        name, sign, value = pair.partition("=")
        if not sign:
            raise InvalidFaultError(f"{pair!r} in the fault {text!r} is not name=value")
        try:
            record[name.strip()] = _NUMBERS.get(name.strip(), str)(value)
        except ValueError as error:
            raise InvalidFaultError(f"{pair!r} in the fault {text!r} needs a number") from error
    return Fault.from_record(record)


def parse_faults(text: str) -> list[Fault]:
    """Faults from a list separated by ``;``."""
    return [parse_fault(part) for part in text.split(";") if part.strip()]


class FaultPlan:
    """The server's switches, and how often each may still strike."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._faults: list[Fault] = list(faults)
        self._taken_by_request: dict[str, int] = {}

    def add(self, fault: Fault) -> None:
        self._faults.append(fault)

    def clear(self) -> None:
        self._faults.clear()
        self._taken_by_request.clear()

    def records(self) -> list[dict[str, Any]]:
        """What is still switched on, for ``GET /admin/faults``."""
        return [fault.to_record() for fault in self._faults]

    def take_transport(self, point: Point, facts: Mapping[str, str]) -> Fault | None:
        """The fault that strikes this request, counted down."""
        return self._take(
            lambda fault: fault.kind in TRANSPORT_KINDS and fault.point is point and _holds(fault, facts)
        )

    def take_kinds(self, kinds: frozenset[FaultKind], facts: Mapping[str, str]) -> list[Fault]:
        """Every fault of these kinds that applies, each counted down once."""
        chosen = [fault for fault in self._faults if fault.kind in kinds and _holds(fault, facts)]
        for fault in chosen:
            self._count_down(fault)
        return chosen

    def peek(self, kind: FaultKind, facts: Mapping[str, str]) -> Fault | None:
        """A lasting server-wide switch, not counted down."""
        return next((fault for fault in self._faults if fault.kind is kind and _holds(fault, facts)), None)

    def take_own(self, faults: Iterable[Fault], point: Point, request: str) -> Fault | None:
        """The transport fault that a submit asked for itself, counted per request fingerprint, since a
        repeated submit carries the same switch.
        """
        for index, fault in enumerate(faults):
            if fault.kind not in TRANSPORT_KINDS or fault.point is not point:
                continue
            counter = f"{request}:{index}"
            taken = self._taken_by_request.get(counter, 0)
            if fault.times is None or taken < fault.times:
                self._taken_by_request[counter] = taken + 1
                return fault
        return None

    def _take(self, applies: Any) -> Fault | None:
        for fault in self._faults:
            if applies(fault):
                self._count_down(fault)
                return fault
        return None

    def _count_down(self, fault: Fault) -> None:
        if fault.times is None:
            return
        position = next(index for index, item in enumerate(self._faults) if item is fault)
        if fault.times <= 1:
            del self._faults[position]
        else:
            self._faults[position] = replace(fault, times=fault.times - 1)


def _holds(fault: Fault, facts: Mapping[str, str]) -> bool:
    return all(facts.get(name) == value for name, value in fault.where.items())


def take_bound(records: list[dict[str, Any]], point: Point) -> tuple[Fault | None, list[dict[str, Any]]]:
    """The transport fault bound to a job that strikes at a point, and the records counted down."""
    for index, record in enumerate(records):
        fault = Fault.from_record(record)
        if fault.kind not in TRANSPORT_KINDS or fault.point is not point or fault.times == 0:
            continue
        if fault.times is None:
            return fault, records
        rest = [*records]
        rest[index] = replace(fault, times=fault.times - 1).to_record()
        return fault, rest
    return None, records


def bound(records: list[dict[str, Any]], kind: FaultKind) -> Fault | None:
    """The fault of a kind bound to a job, if there is one."""
    return next((Fault.from_record(record) for record in records if record["kind"] == kind.value), None)
