"""Nothing but our own sentences leaves a command that fails: no library's text, no argument, no local."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import typer
from typer.testing import CliRunner

from dptext_etl import errors
from dptext_etl.cli import failures, terminal
from dptext_etl.cli.options import Command
from tests.quick import quick

SENTINEL = "zzqsentinelqzz"


class PanicException(BaseException):
    """As compiled code raises them: no Exception."""


def failing(error):
    app = typer.Typer(cls=failures.Boundary, pretty_exceptions_enable=False)

    @app.command()
    def work() -> None:
        text = f"{SENTINEL} in a local"
        raise error from ValueError(text)

    @app.command()
    def other() -> None: ...

    return app


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ValueError(SENTINEL), "ValueError"),
        (KeyError(SENTINEL), "KeyError"),
        (PanicException(SENTINEL), "PanicException"),
        (UnicodeDecodeError("utf-8", SENTINEL.encode(), 0, 1, SENTINEL), "UnicodeDecodeError"),
        (ExceptionGroup(SENTINEL, [ValueError(SENTINEL)]), "ExceptionGroup"),
        (MemoryError(SENTINEL), "MemoryError"),
        (OSError(5, SENTINEL, SENTINEL), "OSError (Input/output error)"),
    ],
)
@pytest.mark.parametrize("frames", ["", "1"])
def test_an_unexpected_failure_says_its_type_only(error, name, frames):
    error.add_note(SENTINEL)
    done = CliRunner().invoke(failing(error), ["work"], env={failures.WHERE: frames})
    assert done.exit_code == failures.UNEXPECTED == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"Error: unexpected {name};")
    assert SENTINEL not in done.output
    assert ("test_failures.py" in done.stderr) == bool(frames)  # where it happened, only when asked


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.PolicyError, 5), (errors.DisclosureError, 5), (errors.KeyReferenceError, 5), (errors.ArtifactError, 5),
        (errors.InputError, 5), (errors.LedgerError, 5), (errors.UsageError, 2), (errors.BudgetError, 3),
        (errors.GateError, 4), (errors.UnavailableLedgerError, 6), (errors.LockedLedgerError, 6), (errors.BusyError, 6),
        (errors.DiskError, 7), (errors.FullLedgerError, 7),
    ],
)  # fmt: skip
def test_our_errors_say_their_sentence_and_hint(kind, code):
    done = CliRunner().invoke(failing(kind("this is so", "do that")), ["work"])
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", "Error: this is so\nHint: do that\n")


@pytest.mark.parametrize(
    ("error", "code", "exit_code", "hint"),
    [
        (errors.PolicyError("this is so", "do that"), "policy", 5, "do that"),
        (errors.DisclosureError("this is so"), "disclosure", 5, None),
        (errors.LockedLedgerError("this is so", "wait"), "busy", 6, "wait"),
        (errors.BudgetError("this is so"), "budget", 3, None),
        (errors.GateError("this is so"), "gate", 4, None),
        (errors.InputError("this is so", fields={"rows": 24}), "input", 5, None),
        (errors.FullLedgerError("this is so"), "disk", 7, None),
        (OSError(28, SENTINEL, SENTINEL), "disk", 7, errors.DISK_HINT),
        (KeyboardInterrupt(SENTINEL), "interrupted", 130, None),
        (ValueError(SENTINEL), "unexpected", 1, None),
    ],
)
@pytest.mark.parametrize("emits", [False, True])
def test_with_json_stdout_holds_one_object(error, code, exit_code, hint, emits):
    app = typer.Typer(cls=failures.Boundary, pretty_exceptions_enable=False)

    @app.command(cls=Command)
    def work() -> None:
        assert terminal.as_json()
        if emits:
            terminal.emit({"passed": False})
        raise error

    @app.command()
    def other() -> None: ...

    done = CliRunner().invoke(app, ["work", "--json"])
    said = {"unexpected": "unexpected ValueError", "interrupted": failures.STOPPED}.get(code, "this is so")
    said = failures.FULL if isinstance(error, OSError) else said
    facts = {"code": code, "exit_code": exit_code, "message": said, "hint": hint}
    facts["fields"] = {"rows": 24} if code == "input" else {}
    assert json.loads(done.stdout) == ({"passed": False} if emits else {"error": facts})
    assert done.exit_code == exit_code
    assert SENTINEL not in done.output


def test_codes_belong_to_kinds_of_failures_and_the_application_shows_no_locals():
    # except for ledgers: that a disk is full, a server away, or another process busy, is the same there
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DPTextError)]
    shared = [errors.FullLedgerError, errors.UnavailableLedgerError, errors.LockedLedgerError]
    assert len({kind.code for kind in kinds}) == len(kinds) - len(shared)
    assert [kind.code for kind in shared] == ["disk", "unavailable", "busy"]
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DPTextError)]
    assert {kind.exit_code for kind in kinds} | {0, errors.UNCHANGED, errors.INTERRUPTED} == set(errors.EXIT_CODES)
    assert len(set(errors.EXIT_CODES.values())) == len(errors.EXIT_CODES)
    from dptext_etl.cli.app import app

    assert not app.pretty_exceptions_show_locals
    assert not app.pretty_exceptions_enable
    assert app.info.cls in failures.Boundary.__subclasses__()


@pytest.mark.parametrize(
    "full",
    [OSError(28, SENTINEL), OSError(122, SENTINEL), RuntimeError("write: No space left on device (os error 28)")],
)
def test_a_full_disk_is_one_failure_wherever_it_happens(full):
    said = "writing the part failed: no space is left"
    with pytest.raises(errors.DiskError, match=said) as caught, errors.seam("writing the part"):
        raise full
    assert caught.value.__cause__ is None
    assert not errors.is_full(OSError(5, "No space left on device"))
    assert CliRunner().invoke(failing(full), ["work"]).exit_code == errors.DISK


def test_usage_errors_exit_with_2_in_json_too():
    app = failing(ValueError())
    assert CliRunner().invoke(app, ["work", "--nonsense"]).exit_code == 2
    assert CliRunner().invoke(app, ["nothing"]).exit_code == 2
    done = CliRunner().invoke(failing(ValueError()), ["work", "--json", "--nonsense"])
    failed = json.loads(done.stdout)["error"]
    assert (done.exit_code, failed["code"], failed["exit_code"]) == (2, "usage", 2)
    assert "--nonsense" in failed["message"] or "--json" in failed["message"]


def run_python(code):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)


def test_hooks_hold_outside_of_commands():
    done = run_python(
        f"""
        import logging, sys, threading, warnings
        from dptext_etl.cli import failures
        failures.install()
        class Grave:
            def __del__(self): raise ValueError("{SENTINEL}")
        def work(text): raise KeyError(text)
        del_me = Grave(); del del_me
        thread = threading.Thread(target=work, args=("{SENTINEL}",)); thread.start(); thread.join()
        warnings.warn("{SENTINEL}")
        logging.getLogger("somebody.else").error("{SENTINEL}")
        logging.getLogger("dptext_etl.runner").error("ours")
        raise RuntimeError("{SENTINEL}")
        """
    )
    assert SENTINEL not in done.stdout + done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("Hint")] == [
        f"Error: unexpected {name}; its text is not shown because it could quote your data."
        if name != "ours"
        else "ours"
        for name in ("ValueError", "KeyError", "ours", "RuntimeError")
    ]


def test_the_installed_command_is_guarded():
    """The real entry point, with a command that fails in a way no one foresaw."""
    done = run_python(
        f"""
        import sys
        from dptext_etl import catalog
        from dptext_etl.cli import main
        def load(name):
            text = "{SENTINEL}"
            raise LookupError(text)
        catalog.load = load
        sys.argv = ["dptext", "explain", "custext"]
        main()
        """
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: unexpected LookupError;")
    assert SENTINEL not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "meant"), quick([(("paln",), "plan"), (("ledger", "shw"), "show"), (("corpus", "bild"), "build")])
)
def test_a_misspelled_command_is_suggested_once(words, meant):
    done = subprocess.run([sys.executable, "-m", "dptext_etl.cli", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count(f"Did you mean '{meant}'?")) == (2, 1)


@pytest.mark.parametrize(
    ("words", "code"), [(("mechanisms",), 0), (("--help",), 0), (("explain", "nothing", "--json"), errors.POLICY)]
)
@pytest.mark.parametrize("also", [False, True], ids=["stdout", "stderr, too"])
def test_a_command_ends_as_it_would_have_though_no_one_reads_it(warm, words, code, also):
    """As in `dptext run … | true`, which has published by then."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        errors_to = closed if also else subprocess.PIPE
        command = [*warm, "-m", "dptext_etl.cli", *words]
        done = subprocess.run(command, check=False, stdout=closed, stderr=errors_to, text=True)
    assert done.returncode == code
    assert also or "Traceback" not in done.stderr
    assert also or "BrokenPipe" not in done.stderr
