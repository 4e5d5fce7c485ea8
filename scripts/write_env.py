"""Writes .env for docker-compose.yaml from .env.example, with fresh secrets; keeps an existing file."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def filled(example: str) -> str:
    """The text of .env.example with a secret after each ``NAME=`` that has no value."""
    lines = []
    for line in example.splitlines():
        if line.endswith("=") and not line.startswith("#"):
            lines.append(line + _secret(line[:-1]))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _secret(name: str) -> str:
    if name.endswith("FERNET_KEY"):
        return base64.urlsafe_b64encode(os.urandom(32)).decode()
    return secrets.token_hex(24)


def main() -> int:
    target = ROOT / ".env"
    try:
        # Created for its owner alone before anything secret is in it.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        print(f"{target} exists already; remove it to get new secrets", file=sys.stderr)
        return 1
    with os.fdopen(descriptor, "w") as file:
        file.write(filled((ROOT / ".env.example").read_text()))
    print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
