"""The web application under ``/relay``: pages for reading, two actions, and the open health route.

Every route but ``/health`` asks for a login and for the right to read DAGs; what concerns a DAG that the user
may not read is left out. Nothing is written by GET. Airflow mounts this without any check of its own.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel, ConfigDict

from airflow_relay import links
from airflow_relay.clock import utcnow
from airflow_relay.core.pipeline import PipelineError
from airflow_relay.core.watch import span
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger.errors import LedgerError, LedgerNotReadyError, RefusedActionError
from airflow_relay.operations import actions
from airflow_relay.operations.health import check_recovery
from airflow_relay.plugin import views
from airflow_relay.plugin.access import ReaderDep, reader, same_origin

_HERE: Final = Path(__file__).parent
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)

app = FastAPI(title="Relay", docs_url=None, redoc_url=None, openapi_url=None)
pages = APIRouter(dependencies=[Depends(reader)])
"""Everything but the health route."""


def _moment(value: datetime | None) -> str:
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}Z"


def _span(value: timedelta | None) -> str:
    return "" if value is None else span(value)


_templates = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(moment=_moment, span=_span)


def _page(name: str, **values: Any) -> HTMLResponse:
    text = _templates.get_template(name).render(
        prefix=f"{links.base_path()}{links.PREFIX}", now=utcnow(), **values
    )
    headers = {
        "Content-Security-Policy": _POLICY,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(text, headers=headers)


@app.exception_handler(LedgerNotReadyError)
def _not_ready(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001 - FastAPI's signature
    return JSONResponse({"detail": str(error)}, status_code=503)


@app.get("/health")
def health() -> JSONResponse:
    """Status and age of sweep and tick; 200 or 503. Open, like Airflow's own health route."""
    report = check_recovery(get_ledger, now=utcnow())
    return JSONResponse(
        report.to_json(), status_code=report.http_status, headers={"Cache-Control": "no-store"}
    )


@pages.get("/")
def front(who: ReaderDep) -> HTMLResponse:
    """Stages, dead letters, breakers, holds, heartbeats."""
    return _page("front.html", **views.front(get_ledger(), who, utcnow()))


@pages.get("/stages/{pipeline}/{stage}")
def stage(pipeline: str, stage: str, who: ReaderDep) -> HTMLResponse:
    """The items at a stage, and why each waits."""
    found = views.stage(get_ledger(), who, pipeline, stage, utcnow())
    if found is None:
        raise HTTPException(403, "You may not read the DAG of this stage.")
    return _page("stage.html", **found)


@pages.get("/items/{item_id}")
def item(item_id: int, who: ReaderDep) -> HTMLResponse:
    """An item's runs and activity."""
    found = views.item(get_ledger(), who, item_id, utcnow())
    if found is None:
        raise HTTPException(404, "There is no such item, or you may not read the DAGs that it went through.")
    return _page("item.html", **found)


@pages.get("/static/{name}")
def static(name: str) -> Response:
    """The stylesheet and the script of the two buttons."""
    kinds = {"relay.css": "text/css", "relay.js": "text/javascript"}
    if name not in kinds:
        raise HTTPException(404, "There is no such file.")
    return Response((_HERE / "static" / name).read_bytes(), media_type=kinds[name])


class Wish(BaseModel):
    """The body of an action."""

    model_config = ConfigDict(extra="forbid")

    reason: str = ""
    """Why, for the item's log."""


@pages.post("/items/{item_id}/redrive", dependencies=[Depends(same_origin)])
def redrive(item_id: int, who: ReaderDep, wish: Annotated[Wish, Body()]) -> JSONResponse:  # noqa: ARG001 - the body must be JSON
    """A fresh budget for a dead or failed item."""
    ledger = get_ledger()
    key, pipeline = _to_act_on(ledger, item_id, who)
    return _done(lambda: actions.redrive(ledger, key, by=who.name, now=utcnow(), pipeline=pipeline))


@pages.post("/items/{item_id}/discard", dependencies=[Depends(same_origin)])
def discard(item_id: int, who: ReaderDep, wish: Annotated[Wish, Body()]) -> JSONResponse:
    """The end of an item."""
    ledger = get_ledger()
    key, pipeline = _to_act_on(ledger, item_id, who)
    return _done(
        lambda: actions.discard(
            ledger, key, by=who.name, now=utcnow(), pipeline=pipeline, reason=wish.reason[:500]
        )
    )


def _to_act_on(ledger: Any, item_id: int, who: ReaderDep) -> tuple[str, str]:
    found = views.find_item(ledger, who, item_id)
    if found is None:
        raise HTTPException(404, "There is no such item, or you may not read its DAG.")
    if not who.may_trigger(found.dag_id):
        raise HTTPException(403, f"You may not start runs of {found.dag_id}.")
    return found.key, found.pipeline


def _done(act: Any) -> JSONResponse:
    try:
        result = act()
    except LedgerNotReadyError:
        raise
    except (RefusedActionError, PipelineError, LedgerError) as error:
        return JSONResponse({"detail": str(error)}, status_code=409)
    return JSONResponse({"changed": result.changed, "text": result.text})


app.include_router(pages)
