"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port of the loopback."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from itertools import count
from pathlib import Path

USER = "dptext"
PLACES = os.environ.get("DPTEXT_TEST_POSTGRES", "/usr/lib/postgresql:/usr/local/pgsql:/opt/homebrew/opt").split(":")


class PostgresServer:
    """A server that is up from `start` to `stop`; every ledger gets its own schema."""

    def __init__(self, more=""):
        self.more = more
        self.folder = Path(tempfile.mkdtemp(prefix="dptext-postgres-"))
        self._numbers = count()
        if os.geteuid() == 0:  # the server refuses to run as root
            owner = pwd.getpwnam("postgres")
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self._run("initdb", "-D", self.data, "-A", "trust", "-U", USER, "--no-sync")
        for left in reversed(range(5)):
            self.port = free_port()
            try:
                self.start()
                break
            except AssertionError:  # someone else may use the port meanwhile
                if not left:
                    raise

    @property
    def data(self):
        return str(self.folder / "data")

    def start(self):
        settings = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} {self.more}"
        self._run("pg_ctl", "-D", self.data, "-o", settings, "-l", str(self.folder / "log"), "-w", "start")

    def stop(self, how="fast"):
        self._run("pg_ctl", "-D", self.data, "-m", how, "-w", "stop")

    def remove(self):
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, schema=None, password=""):
        """The URL of a schema; a new one each time if none is named."""
        schema = schema or f"ledger_{next(self._numbers)}"
        return f"postgresql://{USER}{password}@127.0.0.1:{self.port}/postgres?schema={schema}"

    def _run(self, program, *arguments):
        drop = ("runuser", "-u", "postgres", "--") if os.geteuid() == 0 else ()
        command = [*drop, found(program), *arguments]
        nothing = subprocess.DEVNULL
        done = subprocess.run(command, check=False, stdin=nothing, capture_output=True, cwd="/", timeout=600)
        assert done.returncode == 0, done.stderr.decode()[-2000:]


def found(program):
    """Where a server's program is, or None: Debian keeps them out of PATH, by version."""
    by_version = [path for place in PLACES for path in Path(place).glob(f"*/bin/{program}")]
    return shutil.which(program) or (str(max(by_version, key=lambda path: path.parts[-3])) if by_version else None)


def missing():
    """What keeps a server from being run, or None."""
    if found("initdb") is None or found("pg_ctl") is None:
        return "PostgreSQL's server programs are not on this machine (on Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and "postgres" not in {entry.pw_name for entry in pwd.getpwall()}:
        return "the tests run as root, and there is no user postgres to run a server as"
    return None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
