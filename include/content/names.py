"""File names for published pages, made from item keys, which may be any text."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_HASHED = re.compile(r".*-[0-9a-f]{12}")
_LONGEST = 80
# Names that Windows keeps for devices; a published folder may be copied there.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)")


def file_stem(key: str) -> str:
    """A file name without ending: lower-case ASCII letters, digits, single hyphens; at most 80 characters.

    A key that is such a name is its own stem. Any other gets a readable part and a hash of the key, and so
    does a key that looks like one of those; so two keys share a stem only if their hashes collide.
    """
    plain = _PLAIN.fullmatch(key) and len(key) <= _LONGEST
    if plain and not _HASHED.fullmatch(key) and not _DEVICES.fullmatch(key):
        return key
    readable = "-".join(re.findall(r"[a-z0-9]+", key.lower()))[:60].strip("-")
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{readable or 'item'}-{digest}"
