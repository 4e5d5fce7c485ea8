"""Choosing how to reach an agent from its A2A card, versions 1.0 and 0.3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_relay.protocols.reading import as_dict, as_list, as_text


class Binding(str, Enum):
    """How A2A operations are put on HTTP."""

    JSONRPC = "JSONRPC"  # one POST address, the operation in the body
    HTTP_JSON = "HTTP+JSON"  # one address per operation


class Version(str, Enum):
    V1_0 = "1.0"
    V0_3 = "0.3"


@dataclass(frozen=True)
class Interface:
    """One way to reach the agent."""

    url: str
    binding: Binding
    version: Version
    tenant: str = ""


def choose_interface(card: dict[str, Any]) -> Interface | None:
    """The best interface that Relay speaks, or None: 1.0 before 0.3, JSON-RPC before HTTP+JSON.

    HTTP+JSON is spoken in version 1.0 only.
    """
    order = [
        (Version.V1_0, Binding.JSONRPC),
        (Version.V1_0, Binding.HTTP_JSON),
        (Version.V0_3, Binding.JSONRPC),
    ]
    spoken = [i for i in _interfaces(card) if (i.version, i.binding) in order]
    return min(spoken, key=lambda i: order.index((i.version, i.binding)), default=None)


def _interfaces(card: dict[str, Any]) -> Iterator[Interface]:
    for entry in map(as_dict, as_list(card.get("supportedInterfaces"))):
        # A 1.0 card states the version per interface; without one the header's default, 0.3, applies.
        yield from _interface(entry, entry.get("protocolBinding"), entry.get("protocolVersion") or "0.3")
    version = card.get("protocolVersion") or "0.3"
    yield from _interface(card, card.get("preferredTransport") or "JSONRPC", version)
    for entry in map(as_dict, as_list(card.get("additionalInterfaces"))):
        yield from _interface(entry, entry.get("transport"), version)


def _interface(entry: dict[str, Any], binding: object, version: object) -> Iterator[Interface]:
    major_minor = ".".join(as_text(version).split(".")[:2])
    url = as_text(entry.get("url"))
    if url and binding in [b.value for b in Binding] and major_minor in [v.value for v in Version]:
        yield Interface(url, Binding(binding), Version(major_minor), as_text(entry.get("tenant")))
