# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Beam search: the best output where it looks at all of them, shapes that never change, rows that never meet."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

from dptext_etl_models.inference.beams import Search, beam_search, find_likeliest

END = 0


class Table:
    """Scores of the next id by the one before: one matrix per row, all rows in one batch."""

    def __init__(self, starts, follows):
        self.starts, self.follows = starts, follows  # (rows, ids), (rows, ids, ids)
        self.rows = torch.arange(len(starts))
        self.shapes = set()

    def first(self):
        return self.starts

    def spread(self, beams):
        self.rows = self.rows.repeat_interleave(beams)

    def following(self, ids, origins):
        assert (self.rows[origins] == self.rows).all()  # a beam continues from its own row
        self.shapes.add(tuple(ids.shape))
        return self.follows[self.rows, ids]


def table(rows, ids, seed):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(rows, ids, generator=made) * 2, torch.randn(rows, ids, ids, generator=made) * 2


def best_of_all(starts, follows, steps):
    """The best output of one row by mean log-probability, looked for everywhere."""
    first, after = starts.log_softmax(0), follows.log_softmax(1)
    found = {}
    for outputs in itertools.product(range(len(starts)), repeat=steps):
        cut = outputs[: outputs.index(END) + 1] if END in outputs else outputs
        score = first[cut[0]] + sum(after[a, b] for a, b in itertools.pairwise(cut))
        found[cut] = float(score) / len(cut)
    best = max(found, key=found.get)
    return [*best, *[END] * (steps - len(best))]


def test_with_enough_beams_it_finds_the_best_output_there_is():
    starts, follows = table(12, 5, 3)
    # 2 beams of 4 candidates; with as many beams as half of the ids and a bit of luck per row nothing is lost
    wide = beam_search(Table(starts.repeat(1, 1), follows), Search(2, 3, END)).tolist()
    best = [best_of_all(starts[row], follows[row], 3) for row in range(12)]
    assert sum(one == other for one, other in zip(wide, best, strict=True)) >= 10


def test_one_beam_is_greedy():
    starts, follows = table(30, 40, 7)
    starts[:, END] = follows[:, :, END] = -30.0  # nothing ends
    found = beam_search(Table(starts, follows), Search(1, 6, END)).tolist()
    for row, output in enumerate(found):
        wanted = [int(starts[row].argmax())]
        while len(wanted) < 6:
            wanted.append(int(follows[row, wanted[-1]].argmax()))
        assert output == wanted


def test_rows_do_not_depend_on_their_mates():
    starts, follows = table(16, 50, 9)
    whole = beam_search(Table(starts, follows), Search(4, 8, END))
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(beam_search(Table(starts[order], follows[order]), Search(4, 8, END)), whole[order])
    for row in range(16):
        assert torch.equal(beam_search(Table(starts[[row]], follows[[row]]), Search(4, 8, END))[0], whole[row])


def test_shapes_are_the_same_at_every_step():
    starts, follows = table(6, 50, 11)
    starts[:, END] = follows[:, :, END] = -30.0
    decoder = Table(starts, follows)
    beam_search(decoder, Search(3, 7, END))
    assert decoder.shapes == {(18,)}


def test_ids_that_are_never_taken_are_not():
    starts, follows = table(10, 30, 13)
    starts[:, 7] = follows[:, :, 7] = 50.0
    found = beam_search(Table(starts, follows), Search(3, 5, END, never=(7, 8)))
    assert not ({7, 8} & set(found.flatten().tolist()))


def test_what_follows_an_end_is_the_end():
    starts, follows = table(40, 12, 15)
    for output in beam_search(Table(starts, follows), Search(3, 6, END)).tolist():
        if END in output:
            assert set(output[output.index(END) :]) == {END}


@pytest.mark.parametrize("ids", [10, 64, 700, 5_000])
def test_the_largest_scores_are_found_without_sorting_all(ids):
    scores = torch.randn(6, ids, generator=torch.Generator().manual_seed(17))
    values, places = find_likeliest(scores, 4)
    wanted = scores.log_softmax(1).topk(4, dim=1)
    assert torch.equal(places, wanted.indices)
    assert torch.allclose(values, wanted.values, atol=1e-6)
