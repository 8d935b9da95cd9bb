"""Has a warm Python do what this one was asked to (see `warm_python.py`), and ends as it ended."""

import json
import os
import signal
import socket
import sys


def main(place, *arguments):
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        order = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()  # noqa: PTH109  (pathlib takes long to import)
        socket.send_fds(server, [len(order).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(order)
        with server.makefile() as said:
            child = int(said.readline())
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, _: os.kill(child, number))
            status = int(said.readline())
    if status < 0:
        if -status not in {signal.SIGKILL, signal.SIGSTOP}:  # no one handles these
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
