from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_relay.protocols.errors import InvalidRequest
from airflow_relay.protocols.urls import ForeignOrigin, base_url, join, resolve, same_origin

SCHEMES = ["http", "https"]
HOSTS = ["host", "api.example.com", "127.0.0.1", "[::1]"]
PORTS = ["", ":8080"]
PREFIXES = [[], ["api"], ["openai", "deployments"], ["agents", "a%20b"]]
SLASHES = ["", "/", "//"]


COMBINATIONS = list(itertools.product(SCHEMES, HOSTS, PORTS, PREFIXES, SLASHES, SLASHES))


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_scheme_host_port_prefix_and_slashes_in_every_combination(combination):
    scheme, host, port, prefix, base_end, path_begin = combination
    root = f"{scheme}://{host}{port}"
    base = root + "".join(f"/{segment}" for segment in prefix) + base_end
    expected = "/".join([root, *prefix, "tasks", "42"])
    assert join(base, f"{path_begin}tasks/42") == expected
    assert join(base, f"{path_begin}tasks/42?historyLength=0") == f"{expected}?historyLength=0"


@pytest.mark.parametrize("base_end", SLASHES)
@pytest.mark.parametrize("path_begin", SLASHES)
def test_a_version_at_the_seam_is_not_doubled(base_end, path_begin):
    path = f"{path_begin}v1/responses"
    assert join(f"https://api.openai.com/v1{base_end}", path) == "https://api.openai.com/v1/responses"
    assert join(f"https://x.azure.com/openai/v1{base_end}", path) == "https://x.azure.com/openai/v1/responses"
    assert join(f"https://api.openai.com{base_end}", path) == "https://api.openai.com/v1/responses"
    assert join(f"https://h/v2{base_end}", path) == "https://h/v2/v1/responses"


def test_a_prefix_that_is_no_version_is_kept_even_when_the_path_repeats_it():
    assert join("https://h/agents", "/agents/x") == "https://h/agents/agents/x"


def test_an_empty_path_is_the_base():
    assert join("https://h/rpc/", "/") == "https://h/rpc"
    assert join("https://h", "/") == "https://h"


def test_a_query_of_the_base_goes_along():
    assert join("https://h/openai?api-version=1", "/v1/x?a=b") == "https://h/openai/v1/x?api-version=1&a=b"


def test_a_path_with_a_colon_or_an_encoded_slash_stays_a_path():
    assert join("https://h/a", "/message:send") == "https://h/a/message:send"
    assert join("https://h/a", "/v1/responses/x%2Fy") == "https://h/a/v1/responses/x%2Fy"
    assert join("https://h", "//evil.com/x") == "https://h/evil.com/x"


def test_an_absolute_address_is_kept_only_on_the_same_origin():
    assert join("https://h/a/b", "https://H:443/c/?q=1#f") == "https://H:443/c/?q=1"
    for foreign in ("https://evil.com/c", "http://h/c", "https://h:444/c", "https://h.evil.com/"):
        with pytest.raises(ForeignOrigin, match="is not the connection's https://h:443"):
            join("https://h/a/b", foreign)


@pytest.mark.parametrize(
    "path", ["/v1/../admin", "..", "/a/./b", "/a/%2e%2E/b", "/a\\..\\b", "/a b", "/a\r\nHost: evil", "/\x00"]
)
def test_a_path_that_clients_read_in_different_ways_is_refused(path):
    with pytest.raises(InvalidRequest):
        join("https://h/a", path)


@pytest.mark.parametrize(
    "base",
    ["", "h", "ftp://h", "https://", "https://h:x", "https://[::1", "https://u:p@h", "https://good\\@evil/"],
)
def test_a_base_that_is_no_plain_http_address_is_refused(base):
    with pytest.raises(InvalidRequest):
        join(base, "/x")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://h/a", "https://h/b?c", True),
        ("https://h", "https://h:443/", True),
        ("http://h:80", "http://H", True),
        ("https://h", "http://h", False),
        ("https://h", "https://h:8443", False),
        ("https://h", "https://h.", False),
        ("https://h", "https://h@evil.com", False),
        ("https://h", "https://evil.com/https://h", False),
        ("https://[::1]:8", "https://[::1]:8/x", True),
        ("https://h", "//h", False),
        ("", "", False),
        ("https://h:99999", "https://h:99999", False),
    ],
)
def test_same_origin(one, other, same):
    assert same_origin(one, other) is same
    assert same_origin(other, one) is same


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("/jobs/1", "https://h/jobs/1"),
        ("1", "https://h/api/1"),
        ("https://h/x?sig=1", "https://h/x?sig=1"),
        ("//h/x", "https://h/x"),
        ("?page=2", "https://h/api/jobs?page=2"),
        ("http://h/jobs/1", "https://h/jobs/1"),
    ],
)
def test_a_location_is_read_against_the_url_that_was_asked(location, address):
    assert resolve(location, "https://h/api/jobs") == address


@pytest.mark.parametrize(
    "location",
    ["https://evil.com/", "//evil.com/x", "http://h:8080/x", "https://h@evil.com/", "file:///etc/passwd"],
)
def test_a_location_on_another_origin_is_refused(location):
    with pytest.raises(InvalidRequest):
        resolve(location, "https://h/api/jobs")


def test_a_location_is_never_moved_from_https_to_http():
    with pytest.raises(ForeignOrigin):
        resolve("https://h/x", "http://h/jobs")


@pytest.mark.parametrize(
    ("parts", "base"),
    [
        ({"host": "h"}, "http://h"),
        ({"host": "h", "scheme": "https", "port": 8443}, "https://h:8443"),
        ({"host": "h/api/", "scheme": "https", "port": 8443}, "https://h:8443/api"),
        ({"host": "https://h/api", "scheme": "http"}, "https://h/api"),
        ({"host": "https://h:1", "port": 2}, "https://h:1"),
        ({"host": "::1", "port": 8080}, "http://[::1]:8080"),
        ({"host": " h "}, "http://h"),
    ],
)
def test_the_base_from_a_connections_parts(parts, base):
    assert base_url(**parts) == base


@pytest.mark.parametrize("host", ["", "ftp://h", "https://user:secret@h"])
def test_a_host_that_is_no_http_address_is_refused_without_showing_it(host):
    with pytest.raises(InvalidRequest) as refused:
        base_url(host=host)
    assert "secret" not in str(refused.value)


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_makes_urls_fail_otherwise_or_leave_the_origin(base, path):
    for root in (base, "https://h:8443/api"):
        try:
            joined = join(root, path)
        except InvalidRequest:
            continue
        assert same_origin(root, joined)


@given(st.text(max_size=40))
def test_no_location_leads_to_another_origin(location):
    try:
        address = resolve(location, "https://h/api/x")
    except InvalidRequest:
        return
    assert same_origin("https://h/api/x", address)
