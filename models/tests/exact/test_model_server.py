"""A model server orders its steps as it likes: the release is the one that batches give, and failures stay exact."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl_models.inference.generation import probe_scores
from models.tests.toy_generator import END, Recorded, Toy, ToyGenerator, keys

TEXTS = ["", "a", "b", "hello", "\x00é", "another text, which is longer"]


def score(text, drawn):
    return np.random.default_rng([len(text), *text.encode(), *drawn]).normal(size=3)


class ToyServer(ToyGenerator):
    """The scores of a toy generator, for a random part of the unfinished texts in every step."""

    def __init__(self, score, seed=0, break_at=None, **options):
        super().__init__(score, **options)
        self.random, self.break_at, self.steps, self.asked = np.random.default_rng(seed), break_at, 0, []

    def answer(self, requests, draw):
        self.asked.append(sorted(request.record for request in requests))
        texts = {one.record: bytes(one.prompt).decode() for one in requests}
        drawn = {one.record: tuple(one.drawn) for one in requests}
        left = {one.record: one.most for one in requests}
        while left:
            some = [record for record in left if self.random.random() < 0.6]
            if not some:
                continue
            self.steps += 1
            if self.break_at is not None and self.break_at(self.steps, [texts[record] for record in some]):
                raise RuntimeError("the server broke")
            scores = np.array([self.score(texts[record], drawn[record]) for record in some])
            for record, output in zip(some, draw(scores, np.array(some)), strict=True):
                drawn[record] += (int(output),)
                left[record] -= 1
                if output in self.ends or not left[record]:
                    del left[record]


def released(generator, texts=TEXTS, sampler=None):
    made = Toy(epsilon=6.0, l_max=5).release_with(
        generator, pa.array(texts), keys(len(texts)), sampler=sampler or Recorded()
    )
    return made.text.to_pylist(), made.steps.to_pylist(), made.failed.to_pylist()


@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from(TEXTS), max_size=6))
def test_a_server_releases_what_batches_release(seed, texts):
    assert released(ToyServer(score, seed), texts) == released(ToyGenerator(score), texts)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_after_a_failure_each_text_continues_alone_from_its_own_draws(seed, step):
    broken = ToyServer(score, seed, break_at=lambda at, _: at == step)
    assert released(broken) == released(ToyGenerator(score))
    assert all(len(records) == 1 for records in broken.asked[1:])


def test_a_text_that_breaks_the_server_is_drawn_uniformly_alone():
    broken = ToyServer(score, break_at=lambda _, texts: "hello" in texts)
    texts, steps, failures = released(broken)
    others = [row for row, text in enumerate(TEXTS) if text != "hello"]
    expected = released(ToyGenerator(score))
    assert [texts[row] for row in others] == [expected[0][row] for row in others]
    assert [bool(count) for count in failures] == [text == "hello" for text in TEXTS]
    assert failures[TEXTS.index("hello")] == steps[TEXTS.index("hello")]


def test_a_server_cannot_draw_twice_for_one_step_or_after_an_end():
    class Greedy(ToyServer):
        def answer(self, requests, draw):
            record = requests[0].record
            for _ in range(20):  # beyond the end, and beyond the most draws
                draw(np.array([[0.0, 0.0, 0.0]]), np.array([record]))

    class Doubled(ToyServer):
        def answer(self, requests, draw):
            draw(np.zeros((2, 3)), np.array([requests[0].record] * 2))

    for server in (Greedy(score), Doubled(score)):
        sampler = Recorded()  # refuses a slot that is used twice
        _, steps, failures = released(server, sampler=sampler)
        assert max(steps) <= 5
        assert (len(sampler.slots), sum(failures) > 0) == (sum(steps), isinstance(server, Doubled))


def test_scores_of_another_shape_decide_nothing():
    class Narrow(ToyServer):
        def answer(self, requests, draw):
            draw(np.zeros((1, 2)), np.array([requests[0].record]))

    _, steps, failures = released(Narrow(score))
    assert steps == failures


def test_the_probe_of_a_server_sees_scores_without_numbers_and_failures():
    prompts = [[97], [98]]
    assert probe_scores(ToyServer(score), prompts, 5) == [True, True]
    assert probe_scores(ToyServer(lambda *_: [np.nan] * 3), prompts, 5) == [False, False]
    assert probe_scores(ToyServer(lambda *_: [np.nan] * 3, ends=()), [None], 5) == [False]
    assert probe_scores(ToyServer(score, break_at=lambda *_: True), prompts, 1) == [False, False]


@pytest.mark.parametrize("most", [1, 2])
def test_the_probe_scores_as_many_steps_as_an_answer_has(most):
    server = ToyServer(score)
    assert (probe_scores(server, [[97]], most), server.steps) == ([True], most)
    assert END in server.ends
