"""Work in parallel threads: its order, its bounds, and what becomes of errors."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from dptext_etl.parallel import for_each_product, map_in_order, prefetch, run_both, single_threaded_products


def test_results_come_in_order_and_few_items_are_under_way():
    lock, under_way, most, taken = threading.Lock(), set(), [0], []
    meeting = threading.Barrier(2)

    def work(item):
        with lock:
            under_way.add(item)
            most[0] = max(most[0], len(under_way))
        meeting.wait(timeout=600)  # two items are under way at once, or no one ever passes
        with lock:
            under_way.discard(item)
        return item * item

    def items():
        for item in range(20):
            taken.append(item)
            yield item

    found = map_in_order(work, items(), 2)
    assert (next(found), len(taken), [0, *found]) == (0, 2, [item * item for item in range(20)])
    assert most == [2]


def test_two_things_are_done_at_once_and_the_error_of_the_first_comes_first():
    meeting = threading.Barrier(2)
    assert set(run_both(lambda: meeting.wait(600), lambda: meeting.wait(600), 2)) == {0, 1}
    for width in (1, 2):
        assert run_both(lambda: "here", lambda: "there", width) == ("here", "there")
        with pytest.raises(ZeroDivisionError):
            run_both(lambda: 1 // 0, lambda: {}["absent"], width)
        with pytest.raises(KeyError):
            run_both(lambda: 1, lambda: {}["absent"], width)


@pytest.mark.parametrize("width", [1, 3])
def test_an_error_ends_the_work_where_it_stands(width):
    done = []

    def work(item):
        if item == 4:
            raise KeyError(item)
        done.append(item)
        return item

    found, seen = map_in_order(work, range(100), width), []
    with pytest.raises(KeyError):
        seen.extend(found)
    assert seen == [0, 1, 2, 3]
    assert set(done) <= set(range(4 + width))


@pytest.mark.parametrize("width", [1, 2])
def test_the_next_item_is_taken_while_one_is_used(width):
    taken = [threading.Event() for _ in range(4)]

    def items():
        for place, event in enumerate(taken):
            event.set()
            yield place
        raise KeyError

    used = prefetch(items(), width)
    assert width == 1 or taken[0].wait(timeout=600)
    for place in range(4):
        assert next(used) == place
        if place < 3 and width > 1:
            assert taken[place + 1].wait(timeout=600)
        elif place < 3:
            assert not taken[place + 1].is_set()
    with pytest.raises(KeyError):
        next(used)


def test_products_keep_to_one_thread_until_the_last_block_ends():
    np.ones((2, 2)) @ np.ones((2, 2))

    def allowed():
        return {pool["num_threads"] for pool in threadpool_info() if "numpy" in pool["filepath"]}

    before = allowed()
    first, second = single_threaded_products(), single_threaded_products()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert allowed() == {1}
    second.__exit__(None, None, None)
    assert allowed() == before


@pytest.mark.parametrize("width", [1, 3])
def test_every_item_is_worked_on_with_products_in_one_thread(width):
    np.ones((2, 2)) @ np.ones((2, 2))
    numpys = [one for one in threadpool_info() if "numpy" in one["filepath"]]
    done, limits = [], []

    def work(item):
        limits.extend(one["num_threads"] for one in threadpool_info() if "numpy" in one["filepath"])
        if item == 40:
            raise KeyError(item)
        done.append(item)

    for_each_product(work, range(20), width)
    assert sorted(done) == list(range(20))
    assert width == 1 or set(limits) <= {1}
    with pytest.raises(KeyError):
        for_each_product(work, range(35, 1_000), width)
    assert len(done) < 900
    assert [one for one in threadpool_info() if "numpy" in one["filepath"]] == numpys
