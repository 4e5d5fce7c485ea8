"""Protocols by name: the built-in ones, and those that other packages bring as entry points."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points

from airflow_relay.protocols.base import JSON, AgentProtocol, InvalidRequest

ENTRY_POINT_GROUP = "airflow_relay.protocols"

_BUILT_IN = {
    "responses": "airflow_relay.protocols.responses:ResponsesProtocol",
    "a2a": "airflow_relay.protocols.a2a:A2AProtocol",
    "http202": "airflow_relay.protocols.http202:Http202Protocol",
    "openclaw": "airflow_relay.protocols.openclaw:OpenClawProtocol",
}


def protocol_names() -> list[str]:
    """Every name that :func:`get_protocol` knows, sorted."""
    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def get_protocol(name: str, options: Mapping[str, JSON] | None = None) -> AgentProtocol:
    """The protocol of this name, with these settings.

    :param options: the protocol's own settings, its constructor's keyword arguments.
    :raises InvalidRequest: an unknown name, a setting that the protocol does not have or of the wrong type,
        an entry point that does not give a protocol of its name.
    """
    cls = _load(name)
    given = dict(options or {})
    known = inspect.signature(cls).parameters
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise InvalidRequest(f"protocol {name!r} has no setting {unknown}; it has {sorted(known)}")
    _check_types(name, cls, given)
    try:
        return cls(**given)
    except TypeError as e:
        raise InvalidRequest(f"protocol {name!r}: {e}") from e


@lru_cache(maxsize=64)
def _load(name: str) -> type[AgentProtocol]:
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        loaded = getattr(import_module(module), attribute)
    else:
        points = entry_points(group=ENTRY_POINT_GROUP, name=name)
        if not points:
            raise InvalidRequest(f"no agent protocol {name!r}; there are {protocol_names()}")
        loaded = next(iter(points)).load()
    if not (isinstance(loaded, type) and issubclass(loaded, AgentProtocol)) or loaded.name != name:
        raise InvalidRequest(
            f"entry point {name!r} in group {ENTRY_POINT_GROUP!r} must name a subclass of AgentProtocol "
            f"whose own name is {name!r}, not {loaded!r}"
        )
    return loaded


def _check_types(name: str, cls: type[AgentProtocol], given: Mapping[str, JSON]) -> None:
    """Refuse ``"false"`` where a truth value is meant: connection extras are typed by hand."""
    if not dataclasses.is_dataclass(cls):
        return
    for field in dataclasses.fields(cls):
        default = field.default
        if field.name not in given or not isinstance(default, (bool, str, float)):
            continue
        value = given[field.name]
        wanted = (int, float) if type(default) is float else (type(default),)
        if not isinstance(value, wanted) or (isinstance(value, bool) and not isinstance(default, bool)):
            raise InvalidRequest(
                f"protocol {name!r}: {field.name} must be {wanted[-1].__name__}, not {value!r}"
            )
