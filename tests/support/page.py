"""What tests of the page share: a key that must not become markup, and users."""

from __future__ import annotations

NASTY = '"><script>alert(1)</script>'


def as_user(name: str, **more: str) -> dict[str, str]:
    """Headers of a request by this user."""
    return {"Authorization": f"Bearer {name}", **more}
