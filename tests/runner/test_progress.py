"""Progress and profile of a run: the share never falls, the rest follows from measured rates, and stages add up."""

import pickle
import threading
import time

import pytest

from dptext_etl.runner.progress import PHASES, Meter, Profile, Progress, WholeRun, throttled


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only by clock(seconds)."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def move(seconds):
        now[0] += seconds

    return move


def run_of(clock, rows, per_row):
    """The reports of a run whose phases need a number of seconds per row."""
    seen = []
    course = WholeRun(seen.append)
    for phase, seconds in per_row.items():
        meter = Meter(phase, rows, course)
        for _ in range(4):
            clock(seconds * rows / 4)
            meter.add(rows // 4)
    return seen


def test_a_run_whose_costs_are_those_expected_tells_the_time_that_is_left(clock):
    costs = {name: PHASES[name] / 1000 for name in ("ids", "release", "gates", "publish")}
    seen = run_of(clock, 400, costs)
    whole, spent = sum(costs.values()) * 400, 0.0
    assert all(report.left is None for report in seen if report.phase == "ids")
    released = next(report for report in seen if report.phase == "release" and report.rows_done)
    assert released.left == pytest.approx(whole - (costs["ids"] + costs["release"] / 4) * 400)
    for report in seen:
        if report.left is not None:
            spent = (1 - report.left / whole) * 100
            assert report.share == pytest.approx(spent / 100)
    assert (seen[-1].phase, seen[-1].left, seen[-1].share) == ("publish", 0, 1)


@pytest.mark.parametrize("slow", PHASES)
def test_the_share_never_falls_and_ends_at_one(clock, slow):
    costs = {name: 5.0 if name == slow else 0.001 for name in PHASES}
    shares = [report.share for report in run_of(clock, 40, costs)]
    assert (shares, shares[-1]) == (sorted(shares), 1)
    assert all(0 <= share <= 1 for share in shares)


def test_a_slow_release_makes_nothing_after_it_slow(clock):
    seen = run_of(clock, 40, {"ids": 0.001, "release": 60.0, "gates": 0.025, "publish": 0.009})
    half = [report for report in seen if report.phase == "release"][2]
    assert half.left == pytest.approx(60.0 * 20, rel=0.01)


def test_a_plan_has_a_share_of_its_own(clock):
    seen = []
    Meter("plan", 10, WholeRun(seen.append)).add(5)
    assert (seen[-1].share, seen[-1].left) == (0.5, None)


def test_logs_get_a_line_now_and_then_and_every_end(clock):
    told = []
    listen = throttled(told.append, seconds=10)
    for done in range(1, 11):
        clock(3)
        listen(Progress("release", done, 10, 3.0 * done, 0.0))
    assert [report.rows_done for report in told] == [4, 8, 10]


def test_a_phase_of_unknown_length_ends(clock):
    told = []
    meter = Meter("ids", None, told.append)
    clock(1)
    meter.add(7)
    meter.add(0, last=True)
    assert [(report.rows_total, report.ended) for report in told] == [(None, False), (None, False), (7, True)]


def found(profile):
    return {cost["name"]: cost for cost in profile.as_list()}


@pytest.fixture
def ticks(monkeypatch):
    """Both clocks stop until they are moved: clock(seconds, cpu)."""
    now = {"seconds": 0.0, "cpu": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["seconds"])
    monkeypatch.setattr(time, "process_time", lambda: now["cpu"])

    def move(seconds, cpu):
        now["seconds"] += seconds
        now["cpu"] += cpu

    return move


def test_stages_and_what_lies_between_add_up_to_the_run(ticks):
    profile = Profile()
    ticks(1, 1)
    with profile.stage("read"):
        ticks(2, 3)
        profile.count("read", rows=10, size=500)
    with profile.stage("read"):
        ticks(4, 4)
        profile.count("read", rows=5)
    costs = found(profile)
    assert (costs["read"]["seconds"], costs["read"]["cpu_seconds"]) == (6, 7)
    assert (costs["read"]["rows"], costs["read"]["bytes"]) == (15, 500)
    assert (costs["other"]["seconds"], costs["other"]["cpu_seconds"]) == (1, 1)
    assert costs["read"]["peak_memory"] > 1 << 20


def test_a_stage_inside_another_takes_its_place(ticks):
    profile = Profile()
    with profile.stage("compute"):
        ticks(1, 1)
        with profile.stage("reports"):
            ticks(5, 10)
        ticks(2, 2)
    costs = found(profile)
    assert (costs["compute"]["seconds"], costs["reports"]["cpu_seconds"]) == (3, 10)


def test_stages_side_by_side_share_the_time(ticks):
    profile, under_way, over = Profile(), threading.Event(), threading.Event()

    def other():
        with profile.stage("stage"):
            under_way.set()
            over.wait()

    thread = threading.Thread(target=other)
    with profile.stage("compute"):
        thread.start()
        under_way.wait()
        ticks(2, 4)
        over.set()
        thread.join()
    costs = found(profile)
    assert (costs["compute"]["seconds"], costs["stage"]["seconds"]) == (1, 1)
    assert costs["compute"]["cpu_seconds"] + costs["stage"]["cpu_seconds"] == 4


def test_another_process_goes_on_with_the_profile(ticks):
    profile = Profile()
    with profile.stage("read"):
        ticks(2, 2)
        again = pickle.loads(pickle.dumps(profile))
    with again.stage("read"):
        ticks(1, 5)
    assert found(again)["read"]["cpu_seconds"] == 7
    assert found(profile)["read"]["cpu_seconds"] == 2


def test_a_stage_that_fails_ends(ticks):
    profile = Profile()
    with pytest.raises(KeyError), profile.stage("gates"):
        raise KeyError
    ticks(3, 3)
    assert found(profile)["other"]["seconds"] == 3
