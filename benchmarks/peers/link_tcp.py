"""What the kernel's TCP alone moves between two hosts: each sends as many bytes as an all-reduce of that size, and receives
as many at the same time. Nothing is summed."""

import fcntl
import os
import pathlib
import selectors
import socket
import struct
import time

from recorder import Series

SIZES = (("1MB", 1 << 20, 60), ("32MB", 32 << 20, 15))
WARM_UP = 3
SIOCGIFADDR = 0x8915


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = struct.pack("256s", os.environ["GLOO_SOCKET_IFNAME"].encode())
        return socket.inet_ntoa(fcntl.ioctl(any_socket, SIOCGIFADDR, name)[20:24])


def connected(rank, meeting):
    """One connection; rank 0 writes its address to the rendezvous file `meeting`."""
    if rank == 0:
        with socket.create_server((own_address(), 0)) as server:
            part = meeting.with_suffix(".part")
            part.write_text(f"{server.getsockname()[0]} {server.getsockname()[1]}", encoding="utf-8")
            part.rename(meeting)
            return server.accept()[0]
    while not meeting.exists():
        time.sleep(0.01)
    host, port = meeting.read_text(encoding="utf-8").split()
    return socket.create_connection((host, int(port)))


def exchange(connection, selector, outgoing, incoming):
    """Sends all of the one and fills the other."""
    sent, received = 0, 0
    while sent < len(outgoing) or received < len(incoming):
        waits_for = (selectors.EVENT_WRITE if sent < len(outgoing) else 0) | (
            selectors.EVENT_READ if received < len(incoming) else 0)
        selector.modify(connection, waits_for)
        for _, ready in selector.select():
            if ready & selectors.EVENT_READ:
                received += connection.recv_into(incoming[received:])
            if ready & selectors.EVENT_WRITE:
                sent += connection.send(outgoing[sent:])


def main():
    rank = int(os.environ["RANK"])
    with connected(rank, pathlib.Path(os.environ["LOCKSTEP_BENCH_MEETING"])) as connection, \
            selectors.DefaultSelector() as selector:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
        word = memoryview(bytearray(1))
        for name, size, calls in SIZES:
            series = Series(name, "tcp")
            outgoing, incoming = memoryview(bytearray(size)), memoryview(bytearray(size))
            for call in range(WARM_UP + calls):
                exchange(connection, selector, word, memoryview(bytearray(1)))  # both are here
                if call >= WARM_UP:
                    series.begin()
                exchange(connection, selector, outgoing, incoming)
                if call >= WARM_UP:
                    series.end()
            series.write()


if __name__ == "__main__":
    main()
