"""Tools that record local variables of failures (error trackers, rich tracebacks) find no raw text in our frames."""

import gc
import sys

import polars as pl
import pytest

from dptext_etl import Policy, errors, run
from dptext_etl.checks.published import check_published
from dptext_etl.engines import stage
from dptext_etl.engines.spark import tasks
from dptext_etl.errors import bare
from dptext_etl.families.stored_distributions import TableMechanism
from dptext_etl.runner import check, planning
from dptext_etl.runner.shard import shard, staging
from tests.quick import quick

SENTINEL = "zzqsentinelqzz"


def recorded(error):
    """All that a recorder can print: the locals of every frame of an error and of those that led to it."""
    said, waiting, seen = [], [error], set()
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        waiting += [found.__cause__, found.__context__]
        step = found.__traceback__
        while step is not None:
            if step.tb_frame.f_code.co_filename != __file__:
                said += [_printed(value) for value in step.tb_frame.f_locals.values()]
            step = step.tb_next
    return "\n".join(said)


def _printed(value):
    with pl.Config(fmt_str_lengths=1000, tbl_rows=-1):
        return f"{value!r} {vars(value) if hasattr(value, '__dict__') else ''}"


def failing(*_, **__):
    rows = pl.DataFrame({"review": [SENTINEL]})
    raise ValueError(f"cannot parse {rows['review'][0]}")


@pytest.fixture
def policy(tmp_path, bench):
    """A policy over rows that all hold the sentinel."""
    raw = pl.read_parquet(bench.policy.source)
    texts = {item.name: pl.lit(f"{SENTINEL} ") + pl.col(item.name) for item in bench.policy.columns}
    raw.with_columns(**texts).write_parquet(tmp_path / "raw.parquet")
    values = bench.policy.model_dump(mode="json", by_alias=True, exclude_none=True)
    places = {
        "source": str(tmp_path / "raw.parquet"),
        "sink": str(tmp_path / "out"),
        "staging": str(tmp_path / "inside"),
    }
    return Policy.parse({**values, **places, "ledger": {"url": f"sqlite:///{tmp_path / 'ledger.db'}"}})


def caught(work, *args):
    try:
        work(*args)
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("it was to fail")


WAYS = {
    "a mechanism": (TableMechanism, "release"),
    "reading a shard": (shard, "charge"),
    "hashing": (shard, "digest_of"),
    "staging": (staging.Staging, "save"),
}


def test_the_recorder_finds_what_is_there():
    rows = pl.DataFrame({"review": [SENTINEL]})

    def inner():
        held = rows
        raise ValueError(len(held))

    error = caught(inner)
    frame = error.__traceback__.tb_next.tb_frame
    assert SENTINEL in "".join(_printed(value) for value in frame.f_locals.values())


@pytest.mark.parametrize("way", quick([way for way in WAYS if way != "staging"]))
def test_rows_stand_in_the_frames_of_a_run_while_it_works(policy, monkeypatch, way):
    """Without what holds them back, the recorder would have them; frames that stage a shard hold none."""
    monkeypatch.setattr(errors, "clear_frames", lambda error: None)
    monkeypatch.setattr(*WAYS[way], failing)
    assert SENTINEL in recorded(caught(run, policy))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("work", quick([stage, run]))
def test_a_run_that_fails_leaves_no_rows_in_its_frames(policy, monkeypatch, way, work):
    monkeypatch.setattr(*WAYS[way], failing)
    error = caught(work, policy)
    assert SENTINEL not in recorded(error)
    names = []
    step = error.__traceback__
    while step is not None:
        names.append(step.tb_frame.f_code.co_name)
        step = step.tb_next
    assert "staged" in names, "where it happened is still revealed"


def test_a_plan_that_fails(policy, monkeypatch):
    monkeypatch.setattr(TableMechanism, "positions", failing)
    assert SENTINEL not in recorded(caught(planning.plan, policy))


def test_gates_and_checks_that_fail(policy, monkeypatch):
    staged = stage(policy)
    from dptext_etl.checks.gates.record_gates import RowsLedgered

    monkeypatch.setattr(RowsLedgered, "rows", failing)
    assert SENTINEL not in recorded(caught(check, staged))
    frame = pl.DataFrame({"id": ["r1"], "text": [SENTINEL]})
    assert SENTINEL not in recorded(caught(lambda: check_published(frame, policy)))


def test_a_flow_of_rows():
    @bare
    def flow(rows):
        yield from rows
        held = [SENTINEL]
        raise ValueError(len(held))

    error = caught(lambda: list(flow([SENTINEL])))
    assert SENTINEL not in recorded(error)
    assert tasks.records.__wrapped__, "what an executor runs is such a flow"


def test_errors_of_a_group_and_those_before():
    @bare
    def work():
        held = SENTINEL
        try:
            raise KeyError(len(held))  # noqa: TRY301
        except KeyError as cause:
            raise ExceptionGroup("both", [cause, ValueError(len(held))]) from cause

    error = caught(work)
    assert SENTINEL not in recorded(error)
    gc.collect()
    assert sys.exception() is None
