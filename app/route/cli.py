"""`mocker route`: the arguments of the P/D router and its server."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import uvicorn

from app.route.backends import RoutePolicy
from app.route.server import RouterSettings, create_router_app


def main(argv: Sequence[str]) -> int:
    """Run the router until it is told to stop. Raises ArgumentError for a wrong address."""
    args = _parser().parse_args(argv)
    app = create_router_app(RouterSettings(args.prefill, args.decode, RoutePolicy(args.policy)))
    config = uvicorn.Config(
        app,
        host=args.host,
        port=args.port,
        log_level=args.log_level,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    server.run()
    return 0 if server.started else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mocker route",
        description="Route each chat or completion to a prefill server, then to a decode server, as vLLM's "
        "P/D proxy does. Other requests go to a decode server as they are.",
    )
    parser.add_argument("--prefill", nargs="+", required=True, metavar="URL", help="prefill servers")
    parser.add_argument("--decode", nargs="+", required=True, metavar="URL", help="decode servers")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (%(default)s)")
    parser.add_argument(
        "--policy",
        choices=[str(policy) for policy in RoutePolicy],
        default=str(RoutePolicy.ROUND_ROBIN),
        help="which server is next (%(default)s)",
    )
    parser.add_argument("--log-level", default="warning", help="log level of the server (%(default)s)")
    return parser
