"""Lay out rows for a masked language model: the text, then the text as released so far, with masks in it.

A row is `<s> A </s></s> B </s>`, in the tokenizer's frame for pairs. A holds the original words. B holds the words
drawn so far, one mask for every position of the block, and the words that follow. The position of a mask is counted and
never searched, so a mask written in a text is ordinary text. If a row does not fit the window, both copies are cut
around the masks, by sub-words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.sampling import Choices
from dptext_etl_models.inference.masked.script import PADDED, Numbers, Script, Scripts, bounds, within

Pieces = Sequence[int]


class Frame(NamedTuple):
    """The tokens around the two copies of a text."""

    before: tuple[int, ...]  # token ids before the first copy
    between: tuple[int, ...]  # token ids between the copies
    after: tuple[int, ...]  # token ids after the second copy
    types: tuple[int, int, int, int, int]  # segment numbers of before, first copy, between, second copy, after
    mask: int  # token id of the mask
    pad: int  # token id of the padding
    window: int  # largest number of tokens of a row

    @property
    def room(self) -> int:
        """Return the largest number of tokens of both copies; one more is padding (see `MaskedModel.forward`)."""
        return self.window - 1 - len(self.before) - len(self.between) - len(self.after)


class Asked(NamedTuple):
    """Draws that one row each scores: draws `first` to `last` of a text, inside one of its blocks.

    All numbers count the draws of the whole batch of texts; each has shape (n,).
    """

    records: Numbers
    first: Numbers
    last: Numbers
    block_first: Numbers
    block_last: Numbers

    def take(self, selection: npt.NDArray[np.int64] | slice) -> Asked:
        """Return some of the draws."""
        return Asked(*(part[selection] for part in self))


class Rows(NamedTuple):
    """The sources of every row's tokens."""

    starts: Numbers  # indices into `Layout.tokens`, one per segment of a row, shape (n, 9)
    lengths: Numbers  # tokens of each segment, shape (n, 9)
    center: Numbers  # number of masks inside the window, the first of them at the start of segment 5, shape (n,)

    @property
    def totals(self) -> Numbers:
        """Return the number of tokens of each row."""
        return np.asarray(self.lengths.sum(axis=1))

    def take(self, selection: npt.NDArray[np.int64] | slice) -> Rows:
        """Return some of the rows."""
        return Rows(*(part[selection] for part in self))


class Layout:
    """Hold the tokens of texts, and of their words as released so far."""

    def __init__(
        self, scripts: Sequence[Script], encode: Callable[[Sequence[str]], Sequence[Pieces]], frame: Frame, longest: int
    ) -> None:
        self.frame, self._scripts = frame, Scripts.of(scripts)
        every, pieces = self._scripts, encode(self._scripts.distinct)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        sizes = lengths[every.numbers]
        self._offsets = bounds(sizes)
        self._words, self._items_of = every.words_of, every.items_of
        self.starts = bounds(every.draws)
        word, tail, self._drawn = every.word, every.tail, every.drawn
        first = np.repeat(self._words[:-1], np.diff(self._items_of))
        self._anchors = first + np.where(word >= 0, word, np.maximum(0, tail - 1))
        self._tails = first + tail
        replaced = np.where(word >= 0, first + word, -1)
        self.item_of_draw = np.flatnonzero(self._drawn)
        self.replaced = replaced[self.item_of_draw]
        """Index of the word that each draw replaces, among the words of all texts; -1 if it replaces none."""
        tokens = np.fromiter(chain.from_iterable(pieces), np.int64, int(lengths.sum()))
        originals = tokens[np.repeat(bounds(lengths)[every.numbers], sizes) + within(sizes)]
        self._keeps = not bool(self._drawn.all())
        # the pattern: a mask for each draw, none for padding, and the pieces of kept words
        self._places = bounds(np.where(self._drawn, word != PADDED, sizes[replaced] if len(sizes) else 0))
        masked = np.full(int(self._places[-1]), frame.mask, np.int64)
        if self._keeps:
            kept = np.flatnonzero(~self._drawn)
            inside = within(sizes[replaced[kept]])
            masked[np.repeat(self._places[kept], sizes[replaced[kept]]) + inside] = originals[
                np.repeat(self._offsets[replaced[kept]], sizes[replaced[kept]]) + inside
            ]
        most = np.where(self._drawn, longest, np.diff(self._places))
        ends = bounds(most)[self._items_of]
        head = np.array([*frame.before, *frame.between, *frame.after], np.int64)
        self._text, self._pattern = len(head), len(head) + len(originals)
        self._released = self._pattern + len(masked)
        self.tokens = np.zeros(self._released + int(ends[-1]), np.int64)
        self.tokens[: self._released] = np.concatenate([head, originals, masked])
        self._begin, self._done = self._released + ends[:-1], np.zeros(len(scripts), np.int64)
        if self._keeps:
            for record in range(len(scripts)):
                self._keep(record, int(self._items_of[record]))

    def word(self, number: int) -> str:
        """Return a word by its index among the words of all texts."""
        return self._scripts.distinct[int(self._scripts.numbers[number])]

    def asked(self, blocks: Sequence[tuple[int, int, int]] | Numbers, most: int) -> Asked:
        """Turn blocks, shape (n, 3), into draws that one row each scores: at most `most` masks in a row.

        Kept words between masks need room in a row, too: no row spans more than the window leaves for its second copy.
        """
        given = np.asarray(blocks, np.int64).reshape(-1, 3)
        records = given[:, 0]
        first, last = self.starts[records] + given[:, 1], self.starts[records] + given[:, 2]
        if self._keeps and (last - first > 1).any():
            return self._within_room(records, first, last, most)
        parts = -(-(last - first) // most)
        if (parts == 1).all():
            return Asked(records, first, last, first, last)
        part = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        records, first, last = (np.repeat(numbers, parts) for numbers in (records, first, last))
        start = first + part * most
        return Asked(records, start, np.minimum(start + most, last), first, last)

    def _within_room(self, records: Numbers, first: Numbers, last: Numbers, most: int) -> Asked:
        """Cut blocks into rows that hold all of their masks, and the kept words between these."""
        begin, end = (self._offsets[self._words[records + side]] for side in (0, 1))
        items, last_items = self.item_of_draw[first], self.item_of_draw[last - 1]
        span = self._places[last_items + 1] - self._places[items]
        second = self._done[records] + span + end - self._offsets[self._tails[last_items]]
        room, whole = self.frame.room, end - begin
        most_of_row = np.where(whole + second <= room, second, np.maximum(room // 2, room - whole))
        ends = self._places[self.item_of_draw + 1]  # of every draw's mask, among the masks and kept words of all texts
        rows = []
        for number in range(len(records)):
            start, stop = int(first[number]), int(last[number])
            while start < stop:
                width = self._places[self.item_of_draw[start]] + most_of_row[number]
                fitting = int(np.searchsorted(ends[start:stop], width, side="right"))
                ahead = start + min(most, max(1, fitting))
                rows.append((records[number], start, min(ahead, stop), first[number], last[number]))
                start = ahead
        return Asked(*np.array(rows, np.int64).T)

    def rows(self, chosen: Asked) -> Rows:
        """Find the segments of every row, cut to the window."""
        room, words = self.frame.room, self._words
        begin, end = self._offsets[words[chosen.records]], self._offsets[words[chosen.records + 1]]
        items = [self.item_of_draw[draws] for draws in (chosen.first, chosen.last - 1)]
        outer = [self.item_of_draw[draws] for draws in (chosen.block_first, chosen.block_last - 1)]
        here, there = self._offsets[self._anchors[items[0]]], self._offsets[self._anchors[items[1]] + 1]
        here, there = np.minimum(here, end), np.minimum(there, end)
        masks, masks_end = self._places[items[0]], self._places[items[1] + 1]
        block, block_end = self._places[outer[0]], self._places[outer[1] + 1]
        tail = self._offsets[self._tails[outer[1]]]
        done = self._done[chosen.records]
        before, after = masks - block, block_end - masks_end
        left, right, follow = done + before, after + end - tail, end - tail
        whole, second = end - begin, left + (masks_end - masks) + right
        half = room // 2
        for_second = np.where(whole + second <= room, second, np.maximum(half, room - whole))
        for_first = np.where(whole + second <= room, whole, np.maximum(room - half, room - second))
        center = np.minimum(masks_end - masks, for_second)
        left, right = _shared(left, right, for_second - center)
        core = np.minimum(there - here, for_first)
        ahead, behind = _shared(here - begin, end - there, for_first - core)
        near = np.minimum(left, before)
        close = np.minimum(right, after)
        frame = [len(self.frame.before), len(self.frame.between), len(self.frame.after)]
        same = np.ones(len(masks), np.int64)
        starts = [
            0 * same,
            self._text + here - ahead,
            frame[0] * same,
            self._begin[chosen.records] + done - (left - near),
            self._pattern + masks - near,
            self._pattern + masks,
            self._pattern + masks_end,
            self._text + tail,
            (frame[0] + frame[1]) * same,
        ]
        lengths = [
            frame[0] * same, ahead + core + behind, frame[1] * same, left - near, near, center, close,
            np.minimum(right - close, follow), frame[2] * same,
        ]  # fmt: skip
        return Rows(np.array(starts).T, np.array(lengths).T, center)

    def fill(self, rows: Rows, count: int, length: int) -> tuple[Numbers, Numbers, Numbers]:
        """Return tokens, number of real tokens per row, and segment numbers, shape (count, length).

        The rows after the given ones are dummies that hold only the frame.
        """
        frame = self.frame
        tokens = np.full((count, length), frame.pad, np.int64)
        totals = np.zeros(count, np.int64)
        given = len(rows.center)
        bare = [*frame.before, *frame.between, *frame.after]
        tokens[given:, : len(bare)] = bare
        totals[given:] = len(bare)
        totals[:given] = rows.totals
        flat = rows.lengths.ravel()
        ends = np.cumsum(flat)
        source = np.arange(int(ends[-1]) if given else 0) + np.repeat(rows.starts.ravel() - (ends - flat), flat)
        real = np.arange(length) < totals[:given, None]
        tokens[:given][real] = self.tokens[source]
        types = np.zeros((count, length), np.int64)
        if any(frame.types):
            kinds = np.array([frame.types[number] for number in (0, 1, 2, 3, 3, 3, 3, 3, 4)], np.int64)
            types[:given][real] = np.repeat(np.tile(kinds, given), flat)
        return tokens, totals, types

    def columns(self, rows: Rows, chosen: Asked, masks: int) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return the positions of each row's masks, shape (n, masks), and True for those inside the window."""
        draws = chosen.first[:, None] + np.arange(masks)
        real = draws < chosen.last[:, None]
        items = self.item_of_draw[np.minimum(draws, chosen.last[:, None] - 1)]
        within = self._places[items] - self._places[self.item_of_draw[chosen.first]][:, None]
        real &= within < rows.center[:, None]
        start = rows.lengths[:, :5].sum(axis=1)
        return np.where(real, start[:, None] + within, 0), real

    def released(self, blocks: Numbers, chosen: Choices, pieces: Sequence[Pieces], single: Numbers | None) -> None:
        """Append the outputs of complete blocks, and the kept words after them."""
        records, sizes = blocks[:, 0], blocks[:, 2] - blocks[:, 1]
        if single is not None and not self._keeps:  # a token for each output, and one block of each text
            start = np.repeat(self._begin[records] + self._done[records], sizes)
            self.tokens[start + within(sizes)] = single[chosen]
            self._done[records] += sizes
            return
        draws = np.repeat(self.starts[records] + blocks[:, 1], sizes) + within(sizes)
        for record, draw, number in zip(
            np.repeat(records, sizes).tolist(), draws.tolist(), chosen.tolist(), strict=True
        ):
            self._append(record, pieces[number])
            if self._keeps:
                self._keep(record, int(self.item_of_draw[draw]) + 1)

    def _keep(self, record: int, item: int) -> None:
        """Append the kept words from an item up to the next draw."""
        end = int(self._items_of[record + 1])
        while item < end and not self._drawn[item]:
            start = self._pattern + int(self._places[item])
            self._append(record, self.tokens[start : self._pattern + int(self._places[item + 1])])
            item += 1

    def _append(self, record: int, piece: Pieces | Numbers) -> None:
        start = self._begin[record] + self._done[record]
        self.tokens[start : start + len(piece)] = piece
        self._done[record] += len(piece)


def _shared(left: Numbers, right: Numbers, room: Numbers) -> tuple[Numbers, Numbers]:
    """Share the room between both sides: half for each, or more if the other side needs less."""
    taken = np.minimum(left, np.maximum(room // 2, room - right))
    return taken, np.minimum(right, room - taken)
