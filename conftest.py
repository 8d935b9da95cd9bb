"""Shared by the tests of all three packages: an artifact cache, word vectors, servers, and public data if present."""

import functools
import importlib.metadata
import importlib.util
import os
import shlex
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import hypothesis
import pytest

SMALL = {  # three workers share the machine, no test asks the network, a key is there that nothing else uses
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "DPTEXT_SUITE_SECRET": "6b" * 31 + "01",
    "DPTEXT_SHAPES_SECRET": bytes(range(7, 39)).hex(),
    "DPTEXT_STORE_SECRET": "not-to-be-printed",
    "DPTEXT_ENDPOINTS": "127.0.0.1,localhost",  # servers of tests listen there, and policies may name them
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # Spark starts in two thirds of the time
}
if os.environ.get("HYPOTHESIS_PROFILE") != "thorough":
    SMALL["DPTEXT_THREADS"] = "1"  # tests of parallel shards, gates, and draws say how many they want
    SMALL["POLARS_MAX_THREADS"] = "1"  # over tables of 240 rows, handing work to threads costs more than the work
for _name, _value in SMALL.items():
    os.environ.setdefault(_name, _value)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes import the same modules
sys.dont_write_bytecode = False

from tests.memory_folder import use_memory  # noqa: E402  (before anything asks for a temporary folder)

use_memory()

import numpy as np  # noqa: E402  (reads the number of threads)

from dptext_etl.errors import DPTextError  # noqa: E402
from tests.computing import PLACES, place_name, settle  # noqa: E402

pytest_plugins = ["tests.spark_sessions"]

BUSY = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}  # a busy machine is slow
hypothesis.settings.register_profile("ci", max_examples=40, **BUSY)
hypothesis.settings.register_profile("thorough", max_examples=1000, **BUSY)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

TESTS = Path(__file__).resolve().parent / "tests"
SHARED = TESTS.parents[1] / "shared"
LENGTHS = {
    "disclose": {},
    "fixed": {"length": "fixed", "n_max": 30},
    "noisy": {"length": "noisy", "n_max": 30, "epsilon_length": 0.5},
}
MORE = {"santext-plus-all": {"name": "santext", "variant": "plus", "p": 1.0}}
"""Options without which a mechanism would be another one."""
SOME = {
    "custext-plain",
    "custext-plus-faithful",
    "diffractor-geometric-noisy",
    "diffractor-tem-fixed",
    "madlib",
    "santext-plain-noisy",
    "santext-plus",
}

TOGETHER = {
    "spark": ("spark",),
    "postgres": ("postgres", "ledger/test_grants", "ledger/test_stopped", "ledger/test_writers"),
    "processes": (
        "checks/test_canaries",
        "cli/test_failures",
        "docs/test_readme",
        "integration/test_cli_",
        "integration/test_dagster_component",
        "integration/test_run_bad_",
        "integration/test_run_kill",
        "ledger/test_processes",
    ),
    "dagster": ("dagster", "orchestration/"),
    "models": ("models/tests/", "contract/", "test_docstring_examples_run[dptext_etl_models"),
    "expectations": (
        "expectations",
        "gates_downstream",
        "gates_suite_file",
        "gates_frame_metadata",
        "docs/test_docstrings",
    ),
}
"""Tests with one of these in their names go to one worker: a server is started, or a large library loaded, once."""
SERVERS = {"spark": "spark", "postgres": "postgres", "warm": "processes"}
"""Fixtures that start a process for the whole session, and the groups of the tests that have them."""


OTHERS = ("dptext_etl_models", "dptext_etl_eval")
"""The packages that add to the core: `--core` hides them, and tests that need one are skipped without it."""
HEAVY = ("pyspark", "sentence_transformers", "torch", "transformers")
"""What else `--core` hides, because EXTRAS=core does not install it."""


class WithoutHeavy(PathFinder):
    """Find no module of `HEAVY`; SciPy fails over an entry None in `sys.modules`, where it looks for torch."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in HEAVY else super().find_spec(name, path, target)


def lacking():
    """The distributions that are not installed."""
    return [name.replace("_", "-") for name in OTHERS if importlib.util.find_spec(name) is None]


def pytest_addoption(parser):
    group = parser.getgroup("dptext_etl")
    group.addoption("--mechanisms", help="names, separated by commas: run the contract suite for these alone")
    group.addoption(
        "--core", action="store_true", help="run as if the two other packages, torch, and Spark were not installed"
    )


def pytest_configure(config):
    if config.getoption("--core"):
        from dptext_etl import extensions

        sys.modules.update(dict.fromkeys(OTHERS))  # as if they were not installed
        sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutHeavy
        found = extensions.entry_points
        extensions.entry_points = lambda group: [
            point for point in found(group=group) if point.value.partition(".")[0].partition(":")[0] not in OTHERS
        ]
    if config.getoption("--mechanisms"):
        os.environ["DPTEXT_MECHANISMS"] = config.getoption("--mechanisms")


def pytest_ignore_collect(collection_path, config):
    """Leave out what holds for the repository as a whole (`--core`), and files of which no test is wanted.

    Three workers would import torch and collect thousands of tests that `make test` does not run.
    """
    whole = config.getoption("--core") and collection_path in (TESTS / "docs", TESTS / "project")
    wanted = not config.getoption("markexpr").startswith("not thorough") or collection_path.suffix != ".py"
    return True if whole or (not wanted and is_thorough(collection_path)) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from skip_without_the_other_packages())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from skip_without_the_other_packages())


def skip_without_the_other_packages():
    """Skip a test of the core that also needs a package that is not installed."""
    try:
        return (yield)
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        if package in OTHERS:
            pytest.skip(f"{package} is not installed")
        raise
    except DPTextError as exc:
        if any(f"comes with {name}, which is not installed" in exc.message for name in lacking()):
            pytest.skip(exc.message)
        raise


def scope(nodeid):
    """Which tests go to one worker together: those of a server or a large library, or those of a file."""
    path, _, test = nodeid.partition("::")
    name = f"{path.removeprefix('tests/')}::{test}"
    return next((group for group, words in TOGETHER.items() if any(word in name for word in words)), path)


QUICK = ("exact/", "integration/test_run_dpmlm.py", "integration/test_run_evaluate.py")
"""Of the tests of the two other packages, those that `make test` runs: exact claims, and one run from end to end."""


STUDIES = {f"test_{name}.py" for name in ("latent_utility", "rewriting_again", "score_utility", "surrogate_utility")}
"""Of the tests of pages, those of studies that load models or learners."""


@functools.cache
def is_thorough(path):
    """Whether a file is left to `make test-thorough`: a drill, a study, or of another package and not in `QUICK`."""
    package, _, within = path.relative_to(TESTS.parent).as_posix().partition("/tests/")
    of_other = package in {"models", "eval"} and not within.startswith(QUICK)
    return TESTS / "drills" in path.parents or path.name in STUDIES or of_other


def pytest_collection_modifyitems(items):
    """Mark what is thorough, and what needs the machine for itself (clusters of Spark); put first what takes long."""
    for item in items:
        if is_thorough(item.path):
            item.add_marker("thorough")
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("alone")
            item.add_marker("thorough")
        groups = {group for name, group in SERVERS.items() if name in getattr(item, "fixturenames", ())}
        if groups and not item.get_closest_marker("thorough") and scope(item.nodeid) not in groups:
            raise pytest.UsageError(f"{item.nodeid} would start one more server: name it in TOGETHER of conftest.py")
    slow = {scope(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def turn(item):
        name = scope(item.nodeid)
        return [*TOGETHER].index(name) if name in TOGETHER else len(TOGETHER) + (name not in slow)

    items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give the tests of a group to one worker, all others file by file (the order within a file stays)."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroupAndFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return scope(nodeid)

    config.option.loadscopereorder = False  # the order of the collection is better than by number of tests
    return ByGroupAndFile(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_generate_tests(metafunc):
    """A test that takes `word_mechanism` runs for every word mechanism, variant, length and mode that there is.

    In `make test`, all of them in tests of exact claims, and elsewhere some that have every variant, length and mode.
    """
    if "word_mechanism" in metafunc.fixturenames:
        found = word_mechanisms()
        some = found if "exact" in metafunc.definition.path.parts else SOME
        marks = ((name, () if name in some else pytest.mark.thorough) for name in found)
        metafunc.parametrize("word_mechanism", [pytest.param(found[name], id=name, marks=mark) for name, mark in marks])


def word_mechanisms():
    """Each kind's own small example, turned into every other policy that it does not refuse."""
    from dptext_etl import extensions, load
    from dptext_etl.catalog import build
    from dptext_etl.cli.options import variants
    from dptext_etl.errors import PolicyError
    from dptext_etl.families.words import WordMechanism

    found = {
        label: build({**load(more["name"]).example().model_dump(exclude_unset=True), **more})
        for label, more in MORE.items()
    }
    for name in extensions.shipped("mechanisms"):
        kind = load(name)
        if not issubclass(kind, WordMechanism):
            continue
        small = {"name": name, **kind.example().model_dump(exclude_unset=True)}
        for variant in variants(kind) or [None]:
            chosen = {} if variant is None else {"variant": variant}
            for length, options in LENGTHS.items():
                for mode in ("strict", "faithful"):
                    try:
                        mechanism = build({**small, **chosen, **options, "mode": mode})
                    except PolicyError:
                        continue
                    said = [name, *chosen.values(), *([length] if options else []), *([mode] * (mode == "faithful"))]
                    found["-".join(said)] = mechanism
    return found


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Tables that tests build, and anchors of their ledgers, stay out of the user's folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPTEXT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("DPTEXT_ANCHORS", str(tmp_path_factory.mktemp("anchors")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_built_once():
    """Keep the commands that Typer's runner would build for every call."""
    import typer.testing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.testing._get_command))
        yield


@pytest.fixture(params=PLACES, ids=place_name)
def computing(request, monkeypatch):
    """Where and in what models compute, in one place after the other."""
    settle(monkeypatch, request.param)
    return request.param


@pytest.fixture(scope="session")
def shared_data():
    """`../shared/data`, or a skip that says so."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the shared data does not lie next to this checkout")
    return SHARED / "data"


@pytest.fixture(scope="session")
def small_vectors(tmp_path_factory):
    """103 words of 8 dimensions, with duplicate vectors and a remainder for every k used in tests."""
    random = np.random.default_rng(7)
    vectors = random.normal(size=(103, 8)).astype(np.float32)
    vectors[50:56] = vectors[50]
    words = np.array([*(f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(100)), "the", "good", "don't"])
    path = tmp_path_factory.mktemp("vectors") / "small.npz"
    np.savez(path, words=words, vectors=vectors)
    return str(path)


WARM = ("polars", "pyarrow.dataset", "pyarrow.parquet", "alembic.command", "dagster._cli", "dagster_dg_cli.cli")
WARM += tuple(
    f"dptext_etl.{room}.*" for room in ("cli", "ledger", "runner", "mechanisms", "checks.gates", "orchestration")
)
"""What a command imports that tests start; a name that is missing costs time alone."""


@pytest.fixture(scope="session")
def warm(_cache, tmp_path_factory):
    """What to write for `sys.executable` where a process is wanted, and not the seconds of its imports."""
    here, place = TESTS, tmp_path_factory.mktemp("warm") / "socket"
    command = [sys.executable, str(here / "warm_python.py"), str(place), *WARM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout.readline() == b"ready\n"
        yield [sys.executable, "-I", "-S", str(here / "warm_client.py"), str(place)]
        server.stdin.close()


@pytest.fixture(scope="session")
def warm_commands(warm, tmp_path_factory):
    """A folder for `PATH` in which `python` and `dptext` begin at once."""
    folder = tmp_path_factory.mktemp("bin")
    for name, module in {"python": (), "dptext": ("-m", "dptext_etl.cli")}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join([*warm, *module])} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server that answers at 127.0.0.1, or a skip that says what is missing."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra: postgres)")
    from tests.postgres_server import PostgresServer, missing

    if missing() is not None:
        pytest.skip(missing())
    server = PostgresServer()
    yield server
    server.remove()
