"""What every HTTP handler needs: the body as JSON, the bearer token, replies in JSON."""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from airflow_relay.local_agent.wire import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_BODY = 64 * 1024 * 1024


async def read_json(request: Request) -> Any:
    """:raises ApiError: 413 above 64 MiB, 400 when it is no JSON."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise ApiError(
                413, f"The request body is larger than {MAX_BODY} bytes.", code="request_too_large"
            )
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "The request body is not valid JSON.", code="invalid_json") from error


def require_token(request: Request, token: str | None) -> None:
    """:raises ApiError: 401, the bearer token is missing or wrong. With ``token`` None all may pass."""
    if token is None:
        return
    given = request.headers.get("authorization", "").partition(" ")
    if given[0].lower() != "bearer" or not hmac.compare_digest(given[2].strip().encode(), token.encode()):
        raise ApiError(
            401,
            "Missing or incorrect bearer token in the Authorization header.",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )


def json_response(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII, so that odd characters in an input can never break a reply."""
    return Response(json.dumps(value), status_code=status, headers=headers, media_type="application/json")


def error_response(error: ApiError) -> Response:
    return json_response(error.body, status=error.status, headers=error.headers)
