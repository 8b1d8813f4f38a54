"""What one process of a machine may have, and all ranks ask for: a port, a new table of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.meetings import at_once, done_before
from ddpify.rules.shared.options import default_of
from ddpify.rules.shared.outputs import by_all, caught, own

# Where a call that listens is given its address `(host, port)`, or its port.
_ADDRESSES: Final = {
    **{
        f"{module}.{kind}": (0, "server_address")
        for module, kinds in {
            "http.server": "HTTPServer ThreadingHTTPServer",
            "socketserver": "TCPServer UDPServer ThreadingTCPServer ThreadingUDPServer",
        }.items()
        for kind in kinds.split()
    },
    "xmlrpc.server.SimpleXMLRPCServer": (0, "addr"),
    "socket.create_server": (0, "address"),
    "socket.socket.bind": (0, "address"),
    "multiprocessing.connection.Listener": (0, "address"),
}
_PORTS: Final = {
    "wsgiref.simple_server.make_server": (1, "port"),
    "prometheus_client.start_http_server": (0, "port"),
    "debugpy.listen": (0, "endpoint"),
}
_SHARED: Final = re.compile(r"SO_REUSEPORT|reuse_port")
_MAKES: Final = re.compile(r"\s*create\s+(?:table|view|(?:unique\s+)?index)\s+(?!if\b)", re.I)
_DATABASE: Final = "sqlite3.connect"


def ports(run: Run) -> Iterator[tuple[RankCall, int]]:
    """Where all ranks listen on one port, each as a process of its own, and on which."""
    for call in run.calls:
        port = _port(run, call)
        if not isinstance(port, int) or not port or caught(call):
            continue
        if by_all(run, call) and not _SHARED.search(call.module.source.text):
            yield call, port


def _port(run: Run, call: RankCall) -> object:
    name = next((one for one in _bases(call) if one in _ADDRESSES), call.name)
    place = _ADDRESSES.get(name) or _PORTS.get(name)
    given = call.arg(*place) if place is not None else None
    if given is not None and given.items is not None and len(given.items) == 2:
        given = given.items[1]
    if given is None:
        return None
    return given.constant if given.known else default_of(run, given)


def _bases(call: RankCall) -> Iterator[str]:
    """The library's classes of which the one that a call makes is, if it is made as they are."""
    for thing in call.result.things if call.result is not None else ():
        if thing.cls is not None and thing.call is call and thing.cls.method("__init__") is None:
            yield from thing.cls.external_bases()


def tables(run: Run) -> Iterator[RankCall]:
    """Where all ranks make a table, which must not be there, in one file."""
    for call in run.methods("execute", "executescript"):
        text = call.arg(0, "sql")
        made = isinstance(text.constant, str) and _MAKES.match(text.constant) if text else None
        if not made or caught(call) or done_before(run, call) or not _is_one_file(call.receiver):
            continue
        if by_all(run, call) and at_once(run, call):
            yield call


def _is_one_file(database: RankValue | None) -> bool:
    """Whether a connection is to a file that all ranks name alike."""
    opened = database.sources() if database is not None else ()
    paths = [t.call.arg(0, "database") for t in opened if t.name == _DATABASE and t.call]
    return bool(paths) and all(
        path is not None and not own(path) and path.constant not in ("", ":memory:")
        for path in paths
    )
