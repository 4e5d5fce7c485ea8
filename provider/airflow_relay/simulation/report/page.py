"""The HTML report: one file, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from airflow_relay.simulation.experiment import Outcome, Result
from airflow_relay.simulation.recorder import DAY, HOUR
from airflow_relay.simulation.report import charts
from airflow_relay.simulation.report.figures import Standing, Verdict, inputs, number, rows, spread, verdicts
from airflow_relay.simulation.report.svg import MODEL_COLOURS, STAGE_COLOURS
from airflow_relay.simulation.scenario import ModelKind
from airflow_relay.simulation.what_if import bottleneck

_BEFORE: Final = frozenset({ModelKind.CRON, ModelKind.BLIND_TIMERS, ModelKind.FIXED_TIMER})

STYLE: Final = """
:root{--ink:#1f2933;--soft:#66727f;--line:#dfe4ea;--paper:#fff;--back:#f4f6f8;--wait:#e3e8ee;--bad:#d64545;
--use:#4e79a7;--good:#2f7d6d}
@media (prefers-color-scheme:dark){:root{--ink:#e4e9ee;--soft:#98a4b0;--line:#36414c;--paper:#1c2329;
--back:#14191e;--wait:#39444f;--bad:#ef6b6b;--use:#6a9ccf;--good:#57b8a4}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1060px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px}
h2{font-size:18px;margin:0 0 4px}
h3{font-size:14px;margin:14px 0 2px}
p{margin:4px 0 10px}
.soft,.muted{color:var(--soft)}
section{background:var(--paper);border:1px solid var(--line);border-radius:10px;
padding:20px 24px;margin-top:20px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(210px,1fr));gap:12px;margin-top:20px}
.card{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.card .what{color:var(--soft);font-size:13px}
.card .from{color:var(--soft);font-size:17px}
.card .to{font-size:25px;font-weight:650;white-space:nowrap}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:8px 20px}
svg{width:100%;height:auto;display:block;overflow:visible}
svg text{font-size:11px;fill:var(--ink)} svg .tick,svg .muted{fill:var(--soft)} svg .name{font-size:12px}
svg .grid{stroke:var(--line)} svg .axis{stroke:var(--soft)}
svg .midnight{stroke:var(--soft);stroke-dasharray:3 3}
svg line.mark{stroke:var(--ink);stroke-dasharray:4 3} svg text.mark{font-weight:600}
svg .path{stroke-linejoin:round}
.key{display:inline-flex;align-items:center;gap:6px;margin:0 14px 4px 0;font-size:13px}
.key i{width:12px;height:12px;border-radius:3px;display:inline-block}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th,td{text-align:left;padding:6px 12px 6px 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600}
td.n{white-space:nowrap;font-variant-numeric:tabular-nums}
.badge{border-radius:20px;padding:1px 9px;font-size:12px;white-space:nowrap;color:#fff;background:var(--good)}
.badge.no{background:var(--bad)} .badge.edge{background:#b8860b}
.assumed{color:var(--bad)}
details summary{cursor:pointer;font-size:18px;font-weight:650}
"""


def render(result: Result, notes: Sequence[str] = ()) -> str:
    """The page.

    :param notes: remarks on the inputs, one sentence each.
    """
    before, after = _pair(result)
    title = escape(result.scenario.title)
    about = (
        f"{escape(result.scenario.document)} · {result.days} simulated days, {len(result.seeds)} seeds each; "
        "± is a 95 % confidence interval over the seeds."
    )
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="soft">{about}</p>',
        _notes(notes),
        _cards(result, before, after),
        _lanes(before, after),
        _histograms(result),
        _progress(result, before, after),
        _slots(result),
        _claims(verdicts(result)),
        _comparison(result),
        _inputs(result),
        _findings(result),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>\n{body}\n</main></body></html>\n"
    )


def _pair(result: Result) -> tuple[Outcome, Outcome]:
    """The models that are compared at the top: the first, and the first that is not of the old kind."""
    outcomes = list(result.outcomes.values())
    newer = [o for o in outcomes[1:] if o.model.kind not in _BEFORE]
    return outcomes[0], newer[0] if newer else outcomes[-1]


def _section(title: str, lead: str, body: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="soft">{escape(lead)}</p>{body}</section>'


def _notes(notes: Iterable[str]) -> str:
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<section><h2>Mind</h2><ul>{listed}</ul></section>" if listed else ""


_CARDS: Final = (
    "end_to_end_median",
    "end_to_end_mean",
    "missed_share",
    "interventions",
    "dispatches",
    "timeouts",
    "wasted_minutes",
    "wasted_tokens",
    "idle_hours",
    "same_day_bad_day",
    "work_in_progress",
)


def _cards(result: Result, before: Outcome, after: Outcome) -> str:
    known = {row.name: row for row in rows(result)}
    cards: list[str] = []
    for name in _CARDS:
        row = known.get(name)
        if row is None or len(cards) >= 6:
            continue
        old, new = row.estimates[before.model.name], row.estimates[after.model.name]
        same = before.model.name == after.model.name
        was = "" if same else f'<span class="from">{number(old.mean)} → </span>'
        cards.append(
            f'<div class="card"><div class="what">{escape(row.title)}</div>'
            f'<div>{was}<span class="to">{number(new.mean)} {escape(row.unit)}</span></div></div>'
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _colours(*outcomes: Outcome) -> dict[str, str]:
    stages: dict[str, None] = {}
    for outcome in outcomes:
        for lane in outcome.example.lanes:
            stages.update(dict.fromkeys(bar.stage for bar in lane.bars))
    return {stage: STAGE_COLOURS[i % len(STAGE_COLOURS)] for i, stage in enumerate(stages)}


def _key(entries: Iterable[tuple[str, str]]) -> str:
    return "".join(f'<span class="key"><i style="background:{c}"></i>{escape(n)}</span>' for n, c in entries)


def _lanes(before: Outcome, after: Outcome) -> str:
    shown = [before] if before is after else [before, after]
    lanes = [lane for o in shown for lane in o.example.lanes[: charts.LANES]]
    if not lanes:
        return ""
    colours = _colours(*shown)
    begin = min(lane.registered for lane in lanes) // HOUR * HOUR
    last = max((lane.finished or begin for lane in lanes), default=begin)
    end = min(max(last + 1.5 * HOUR, begin + 6 * HOUR), begin + 2.5 * DAY)
    key = _key([*colours.items(), ("waiting", "var(--wait)"), ("failed", "var(--bad)")])
    drawn = "".join(
        f"<h3>{escape(o.model.title)}</h3>{charts.lanes(o, colours, begin=begin, end=end)}" for o in shown
    )
    lead = "The first items of two days, each on its lane from the moment it came to the moment it was done."
    return _section("Item by item", lead, f"<div>{key}</div>{drawn}")


def _histograms(result: Result) -> str:
    outcomes = [o for o in result.outcomes.values() if o.end_to_end.count]
    if not outcomes:
        return ""
    high = max(1e-6, *(o.end_to_end.quantile(0.97) for o in outcomes)) * 1.05
    peak = max(max(charts.shares(o, high=high)) for o in outcomes)
    drawn = "".join(
        f"<div><h3>{escape(o.model.title)}</h3>"
        f"{charts.histogram(o, MODEL_COLOURS[i % len(MODEL_COLOURS)], high=high, peak=peak)}</div>"
        for i, o in enumerate(outcomes)
    )
    lead = "How long an item takes, all seeds together, on one scale. The last bar holds all that is above."
    return _section("End to end", lead, f'<div class="two">{drawn}</div>')


def _progress(result: Result, before: Outcome, after: Outcome) -> str:
    shown = [before] if before is after else [before, after]
    levels = [(o.model.title, MODEL_COLOURS[i], o.example.wip) for i, o in enumerate(shown)]
    chart = charts.curves(levels, days=result.days, title="Work in progress")
    key = _key((name, colour) for name, colour, _ in levels)
    lead = "Items that have come and are not done, hour by hour, in the first days of one run."
    return _section("Work in progress", lead, f"<div>{key}</div>{chart}")


def _slots(result: Result) -> str:
    drawn = "".join(
        f"<h3>{escape(o.model.title)}</h3><p>{escape(bottleneck(o))}</p>{charts.slots(o)}"
        for o in result.outcomes.values()
        if o.model.kind is ModelKind.RELAY and (len(o.in_use) > 1 or sum(o.waiting.values()) > 0)
    )
    lead = "How much of each limit is used on average, and how many items wait for it."
    return _section("Slots", lead, drawn) if drawn else ""


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table; cells are HTML."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(cell for cell in cells) + "</tr>" for cells in lines)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(content: str, *, numeric: bool = False) -> str:
    return f'<td class="n">{escape(content)}</td>' if numeric else f"<td>{escape(content)}</td>"


_BADGES: Final = {Standing.IN_RANGE: "", Standing.AT_THE_EDGE: " edge", Standing.OUTSIDE: " no"}


def _claims(found: Sequence[Verdict]) -> str:
    if not found:
        return ""
    lines = []
    for v in found:
        badge = f'<span class="badge{_BADGES[v.standing]}">{v.standing.value}</span>'
        literal = "" if v.literal is None else f"{spread(v.literal)} {v.claim.unit}"
        lines.append(
            (
                _cell(v.claim.text),
                f"<td>{escape(v.said)}<br><span class='soft'>“{escape(v.claim.quote)}”</span></td>",
                _cell(f"{spread(v.estimate)} {v.claim.unit}", numeric=True),
                _cell(literal, numeric=True),
                f"<td>{badge}</td>",
                _cell(v.claim.note),
            )
        )
    head = ("What", "The document says", "The twin", "Stated inputs alone", "", "Note")
    lead = (
        "What the document claims, and what follows when its work is run by the rules that run in production."
    )
    return _section("The document's numbers", lead, _table(head, lines))


def _comparison(result: Result) -> str:
    head = ["", *(o.model.title for o in result.outcomes.values())]
    lines = [
        [
            _cell(f"{row.title}, {row.unit}" if row.unit else row.title),
            *(
                f'<td class="n" title="seeds: {number(e.least)} to {number(e.most)}">{escape(spread(e))}</td>'
                for e in row.estimates.values()
            ),
        ]
        for row in rows(result)
    ]
    lead = (
        "Mean over the seeds with its 95 % confidence interval; the range of the seeds is behind the mouse."
    )
    return _section("All models", lead, _table(head, lines))


def _inputs(result: Result) -> str:
    lines = [
        (
            _cell(entry.where),
            _cell(entry.value, numeric=True),
            f"<td{' class=assumed' if entry.assumed else ''}>{escape(entry.origin)}</td>",
        )
        for entry in inputs(result.scenario)
    ]
    table = _table(("Number", "Value", "Where it comes from"), lines)
    return f"<section><details><summary>Inputs</summary>{table}</details></section>"


def _findings(result: Result) -> str:
    listed = "".join(f"<li><b>{escape(f.where)}</b>: {escape(f.what)}</li>" for f in result.scenario.findings)
    lead = "Places where the document does not agree with itself."
    return _section("Read with care", lead, f"<ul>{listed}</ul>") if listed else ""
