"""The profile of a run shares its time among stages and counts what went through them."""

import pickle
import threading
import time

import pytest

from dptext_etl.runner.progress import Profile


def found(profile):
    return {cost["name"]: cost for cost in profile.as_list()}


@pytest.fixture
def clock(monkeypatch):
    """Both clocks stop until they are moved: clock(seconds, cpu)."""
    now = {"seconds": 0.0, "cpu": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["seconds"])
    monkeypatch.setattr(time, "process_time", lambda: now["cpu"])

    def move(seconds, cpu):
        now["seconds"] += seconds
        now["cpu"] += cpu

    return move


def test_stages_and_what_lies_between_add_up_to_the_run(clock):
    profile = Profile()
    clock(1, 1)
    with profile.stage("read"):
        clock(2, 3)
        profile.count("read", rows=10, size=500)
    with profile.stage("read"):
        clock(4, 4)
        profile.count("read", rows=5)
    costs = found(profile)
    assert (costs["read"]["seconds"], costs["read"]["cpu_seconds"]) == (6, 7)
    assert (costs["read"]["rows"], costs["read"]["bytes"]) == (15, 500)
    assert (costs["other"]["seconds"], costs["other"]["cpu_seconds"]) == (1, 1)
    assert costs["read"]["peak_memory"] > 1 << 20


def test_a_stage_inside_another_takes_its_place(clock):
    profile = Profile()
    with profile.stage("compute"):
        clock(1, 1)
        with profile.stage("reports"):
            clock(5, 10)
        clock(2, 2)
    costs = found(profile)
    assert (costs["compute"]["seconds"], costs["reports"]["cpu_seconds"]) == (3, 10)


def test_stages_side_by_side_share_the_time(clock):
    profile, under_way, over = Profile(), threading.Event(), threading.Event()

    def other():
        with profile.stage("stage"):
            under_way.set()
            over.wait()

    thread = threading.Thread(target=other)
    with profile.stage("compute"):
        thread.start()
        under_way.wait()
        clock(2, 4)
        over.set()
        thread.join()
    costs = found(profile)
    assert (costs["compute"]["seconds"], costs["stage"]["seconds"]) == (1, 1)
    assert costs["compute"]["cpu_seconds"] + costs["stage"]["cpu_seconds"] == 4


def test_another_process_goes_on_with_the_profile(clock):
    profile = Profile()
    with profile.stage("read"):
        clock(2, 2)
        again = pickle.loads(pickle.dumps(profile))
    with again.stage("read"):
        clock(1, 5)
    assert found(again)["read"]["cpu_seconds"] == 7
    assert found(profile)["read"]["cpu_seconds"] == 2


def test_a_stage_that_fails_ends(clock):
    profile = Profile()
    with pytest.raises(KeyError), profile.stage("gates"):
        raise KeyError
    clock(3, 3)
    assert found(profile)["other"]["seconds"] == 3
