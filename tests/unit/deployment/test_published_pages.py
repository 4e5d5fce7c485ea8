"""The example deployment's plugin: the published folder, for readers of DAGs only."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from airflow_relay.plugin.access import reader

PLUGIN = Path(__file__).resolve().parents[3] / "plugins" / "published_pages.py"


@pytest.fixture
def plugin() -> Any:
    spec = importlib.util.spec_from_file_location("published_pages", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "published"
    (folder / "pages").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>Index</h1>")
    (folder / "pages" / "a.html").write_text("<h1>A</h1>")
    (folder / "pages" / "a.json").write_text("{}")
    (tmp_path / "secret.html").write_text("outside")
    monkeypatch.setenv("RELAY_CONTENT_OUTPUT", str(folder))
    return folder


def client(plugin: Any) -> TestClient:
    app = plugin.make_app()
    app.dependency_overrides[reader] = lambda: None
    return TestClient(app)


@pytest.mark.usefixtures("published")
def test_a_reader_sees_the_pages_without_scripts(plugin: Any) -> None:
    answer = client(plugin).get("/pages/a.html")
    assert answer.text == "<h1>A</h1>"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert client(plugin).get("/").text == "<h1>Index</h1>"


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    "path", ["/../secret.html", "/%2e%2e/secret.html", "/pages/a.json", "/pages", "/none.html"]
)
def test_nothing_else_is_served(plugin: Any, path: str) -> None:
    assert client(plugin).get(path).status_code == 404


def test_every_route_asks_who_is_there(plugin: Any) -> None:
    for route in plugin.make_app().routes:
        dependencies = [d.call for d in route.dependant.dependencies]
        assert reader in dependencies, route.path
