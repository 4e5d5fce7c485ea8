"""The example deployment's own plugin: the published pages inside Airflow's UI, for whoever may read DAGs."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_relay import links

PREFIX = "/published"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".xml": "application/rss+xml; charset=utf-8",
}
# The pages are made by agents: no scripts, no forms, nothing from elsewhere.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; "
    "sandbox allow-same-origin allow-top-navigation"
)


def make_app() -> Any:
    """The application; FastAPI is imported here because only the API server needs it."""
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.responses import Response
    from include.content.settings import content_settings

    from airflow_relay.plugin.access import reader

    app = FastAPI(title="Published pages", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/{path:path}", dependencies=[Depends(reader)])
    def page(path: str) -> Response:
        """A file of the published folder."""
        root = content_settings().output.resolve()
        file = (root / (path or "index.html")).resolve()
        if not file.is_relative_to(root) or file.suffix not in KINDS or not file.is_file():
            raise HTTPException(404, "There is no such page.")
        headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
        return Response(file.read_bytes(), media_type=KINDS[file.suffix], headers=headers)

    return app


class PublishedPagesPlugin(AirflowPlugin):
    """A page in the navigation."""

    name = "published_pages"

    @property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override] # asked for in the API server only
        return [{"app": make_app(), "url_prefix": PREFIX, "name": "Published pages"}]

    @property
    def external_views(self) -> list[Any]:  # type: ignore[override] # read once the configuration is there
        return [
            {
                "name": "Published pages",
                "href": f"{links.base_path()}{PREFIX}/",
                "destination": "nav",
                "category": "browse",
                "url_route": "published",
            }
        ]
