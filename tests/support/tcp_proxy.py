"""A TCP proxy that can go down: to its clients the server behind it is then unreachable."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

from typing_extensions import Self

_CHUNK = 65_536


class TcpProxy:
    """Listens on 127.0.0.1 and passes bytes on. :meth:`down` cuts every connection and refuses new ones."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listener: socket.socket | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Accept connections, always on the same port."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def down(self) -> None:
        """Cut every connection in the middle of whatever it does, and refuse new ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):  # wakes the thread that accepts
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _cut(pair)

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                client, _ = listener.accept()
            except OSError:  # closed by down()
                return
            self._serve(listener, client)

    def _serve(self, listener: socket.socket, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        pair = (client, server)
        with self._lock:
            if self._listener is not listener:
                _cut(pair)
                return
            self._pairs.add(pair)
        for source, sink in (pair, pair[::-1]):
            threading.Thread(target=self._pass_on, args=(pair, source, sink), daemon=True).start()

    def _pass_on(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket
    ) -> None:
        with contextlib.suppress(OSError):  # either side is gone: so is the pair
            while data := source.recv(_CHUNK):
                sink.sendall(data)
        with self._lock:
            self._pairs.discard(pair)
        _cut(pair)


def _cut(pair: tuple[socket.socket, socket.socket]) -> None:
    for end in pair:
        with contextlib.suppress(OSError):  # shut down already
            end.shutdown(socket.SHUT_RDWR)
        end.close()
