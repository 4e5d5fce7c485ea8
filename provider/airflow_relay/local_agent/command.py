"""The command line of the agent server. Light to import: the server itself is loaded by ``run``."""

from __future__ import annotations

import argparse
import os
import sys

from airflow_relay.local_agent.backends import BACKEND_NAMES, EXTRACTIVE, BackendUnavailableError
from airflow_relay.local_agent.faults import Fault, InvalidFaultError, parse_fault
from airflow_relay.local_agent.settings import Latency, ServerSettings
from airflow_relay.local_agent.store import StateFileError

ADMIN_TOKEN_VARIABLE = "RELAY_AGENT_ADMIN_TOKEN"  # noqa: S105 - a name, not a token
USAGE_ERROR = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the server's options; secrets come from environment variables, never from the command line."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=8765, help="0 takes a free port (default: %(default)s)")
    parser.add_argument(
        "--backend",
        action="append",
        choices=BACKEND_NAMES,
        help=f"what does the work; may be given twice (default: {EXTRACTIVE})",
    )
    parser.add_argument(
        "--workers", type=_positive, default=2, help="jobs worked at in parallel (default: %(default)s)"
    )
    parser.add_argument(
        "--latency",
        type=_latency,
        default=Latency(),
        metavar="SECONDS|LOW:HIGH",
        help="time that each job takes on top of its work (default: none)",
    )
    parser.add_argument("--state", metavar="FILE", help="keep jobs in this SQLite file (default: in memory)")
    parser.add_argument(
        "--token-env", metavar="NAME", help="demand the bearer token that this environment variable holds"
    )
    parser.add_argument(
        "--allow-faults",
        action="store_true",
        help=f"for tests: fault switches and /admin, behind the token in ${ADMIN_TOKEN_VARIABLE}",
    )
    parser.add_argument(
        "--fault",
        action="append",
        type=_fault,
        default=[],
        metavar="KIND[:NAME=VALUE,…]",
        help="switch a fault on from the start (with --allow-faults)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal. 0 at a clean end, 2 when it cannot start as told; the reason goes to stderr."""
    try:
        settings = settings_from(args)
        from airflow_relay.local_agent import server  # noqa: PLC0415 - starlette, uvicorn: only when serving

        return server.serve(settings)
    except ImportError as error:
        return _refuse(
            f"the agent server needs {error.name}; install it with: "
            "pip install 'airflow-provider-relay[agent-server]'"
        )
    except OSError as error:
        return _refuse(f"cannot listen on {args.host}:{args.port}: {error.strerror or error}")
    except (ValueError, BackendUnavailableError, StateFileError) as error:
        return _refuse(str(error))


def settings_from(args: argparse.Namespace) -> ServerSettings:
    """:raises ValueError: a named environment variable is empty, or an option needs another."""
    if args.fault and not args.allow_faults:
        raise ValueError("--fault works only together with --allow-faults")
    return ServerSettings(
        host=args.host,
        port=args.port,
        backends=tuple(dict.fromkeys(args.backend or [EXTRACTIVE])),
        workers=args.workers,
        latency=args.latency,
        state=args.state,
        token=_secret(args.token_env) if args.token_env else None,
        admin_token=_secret(ADMIN_TOKEN_VARIABLE) if args.allow_faults else None,
        faults=tuple(args.fault),
    )


def _secret(variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise ValueError(f"the environment variable {variable} is not set; it has to hold the token")
    return value


def _refuse(reason: str) -> int:
    sys.stderr.write(f"agent server: {reason}\n")
    return USAGE_ERROR


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError("must be 0 to 65535")
    return value


def _latency(text: str) -> Latency:
    try:
        return Latency.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _fault(text: str) -> Fault:
    try:
        return parse_fault(text)
    except InvalidFaultError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
