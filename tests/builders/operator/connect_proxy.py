"""An HTTP proxy that takes an operator's calls by the names of Services to where their servers really listen.

gRPC asks it by CONNECT, so a certificate is checked for the name that the operator called: no name server is needed.
"""

import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def connect_proxy(places: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Serve until the end; gives the environment in which gRPC asks the proxy.

    Args:
        places: by `host:port` that is called, the one where it listens; read at each call.
    """

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            """Answer CONNECT, and pass on both ways until one side is closed."""
            called = self.rfile.readline().split()[1].decode()
            while self.rfile.readline().strip():
                pass
            if called not in places:
                self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                return
            host, _, port = places[called].rpartition(":")
            with socket.create_connection((host, int(port))) as other:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=_pass_on, args=(other, self.connection))
                back.start()
                _pass_on(self.connection, other)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Tunnel) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield {"grpc_proxy": "http://{}:{}".format(*server.server_address), "no_grpc_proxy": "nowhere.invalid"}
        finally:
            server.shutdown()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()  # the other side has gone
