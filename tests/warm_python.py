"""A Python that has imported the modules of commands, and forks for each of them, so that they start at once.

Started with a socket's path and what to import (`module`, or `package.*` for all that is in it). An order may name more
in its variable `WARM`, which stays imported. Every connection (`warm_client.py`) hands over arguments for Python
(`-m module`, `-c code`, a script), a folder, an environment and three open files, and gets the number of the
process and, once it has ended, its status. Who hangs up before has the process killed, like its own child.
Nothing is run here itself: threads would not live through a fork.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

STANDARD = (0, 1, 2)


class Order(NamedTuple):
    arguments: list[str]
    folder: str
    environment: dict[str, str]
    files: list[int]


def received(connection: socket.socket) -> Order | None:
    """The order of a client: eight bytes of length that carry its files, then JSON."""
    size, files, _, _ = socket.recv_fds(connection, 8, len(STANDARD))
    said = b""
    while size and len(said) < int.from_bytes(size, "big"):
        more = connection.recv(1 << 20)
        if not more:
            break
        said += more
    return Order(*json.loads(said), files) if said else None


def load(wanted: list[str]) -> None:
    """Import modules (all of a package: `package.*`); missing packages are not missed here."""
    for name in wanted:
        package = name.removesuffix(".*")
        with contextlib.suppress(ImportError):
            found = importlib.import_module(package)
            below = pkgutil.walk_packages(found.__path__, f"{package}.") if package != name else ()
            load([module.name for module in below if not module.name.endswith("__main__")])


def serve(place: str) -> Order | None:
    """Fork for every order; return in the child its order, and in the server, once no one needs it, None."""
    ready, listener = selectors.DefaultSelector(), socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)
    ready.register(listener, selectors.EVENT_READ)
    ready.register(sys.stdin, selectors.EVENT_READ)  # the end of it is the end of anyone who started this
    children: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor of the process

    def buried(watched: int) -> None:
        child, connection = children.pop(watched)
        status = os.waitpid(child, 0)[1]
        ready.unregister(watched)
        ready.unregister(connection)
        os.close(watched)
        with contextlib.suppress(OSError):
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        connection.close()

    print("ready", flush=True)
    while True:
        events = [key.fileobj for key, _ in ready.select()]
        for file in events:
            for watched, (child, connection) in list(children.items()):
                if file in (watched, connection):
                    if file is connection:  # hung up
                        os.kill(child, signal.SIGKILL)
                    buried(watched)
        if sys.stdin in events:
            for child, _ in children.values():
                os.kill(child, signal.SIGKILL)
            return None
        if listener in events:
            connection, _ = listener.accept()
            order = received(connection)
            if order is None:
                connection.close()
                continue
            load(order.environment.get("WARM", "").split())
            gc.freeze()  # untouched memory stays shared with a child, which then ends at once
            child = os.fork()
            if not child:
                listener.close()
                connection.close()
                for _, other in children.values():
                    other.close()
                return order
            for file in order.files:
                os.close(file)
            watched = os.pidfd_open(child)
            children[watched] = child, connection
            ready.register(watched, selectors.EVENT_READ)
            ready.register(connection, selectors.EVENT_READ)
            with suppress(OSError):  # anyone who asked was killed meanwhile: the others continue
                connection.sendall(f"{child}\n".encode())


def begin(order: Order) -> None:
    """Be the process that was asked for, as if Python had just been started."""
    for file, standard in zip(order.files, STANDARD, strict=True):
        os.dup2(file, standard)
        os.close(file)
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    random.seed()
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in before]
    sys.path[:1] = ["", *added]
    sys.stdin, sys.stdout, sys.stderr = (open(file, mode) for file, mode in zip(STANDARD, "rww", strict=True))  # noqa: PTH123, SIM115
    sys.stderr.reconfigure(line_buffering=True)
    importlib.invalidate_caches()
    how, *rest = order.arguments
    if how == "-m":
        sys.argv, sys.path[0] = rest, order.folder
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv, sys.path[0] = order.arguments, str(Path(how).resolve().parent)
        runpy.run_path(how, run_name="__main__")


def finish(status: object) -> None:
    """End as Python does, but do not tear down the modules: that copies all memory that is shared with the server."""
    if status is None or isinstance(status, int):
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit((status or 0) & 0xFF)


if __name__ == "__main__":
    load(sys.argv[2:])
    order = serve(sys.argv[1])
    if order is not None:
        try:
            begin(order)
            finish(0)
        except SystemExit as ended:
            finish(ended.code)
            raise
