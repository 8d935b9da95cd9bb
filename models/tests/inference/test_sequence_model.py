# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""BART as an autoencoder: constant shapes, all-ones cross-attention, rows that never meet, kept columns."""

from __future__ import annotations

import numpy as np
import pytest

from models.tests.inference.barts import LENGTH, TEXTS, WIDTH, blind_encoder, noise, precisely

pytestmark = pytest.mark.usefixtures("one_thread")

torch = pytest.importorskip("torch")

transformers = pytest.importorskip("transformers")
from transformers.modeling_outputs import BaseModelOutput

from dptext_etl.errors import PolicyError
from dptext_etl_models.inference import sequence_model
from dptext_etl_models.inference.beams import Search, beam_search
from dptext_etl_models.inference.sequence_model import AnyDecoding, BartDecoding, SequenceModel
from dptext_etl_models.mechanisms.dpbart import DPBart


def test_every_text_has_one_shape(model):
    read = model.ids(TEXTS)
    assert read.ids.shape == read.mask.shape == (len(TEXTS), LENGTH)
    assert model.encode(TEXTS).shape == (len(TEXTS), model.size) == (len(TEXTS), LENGTH * WIDTH)
    assert read.mask.sum(1).tolist()[4] == LENGTH
    assert read.mask.sum(1).tolist()[1] == 2  # <s></s>


def test_literals_of_special_tokens_are_ordinary_text(model, tokenizer):
    [ids] = model.ids(["<mask></s>"]).ids.tolist()
    assert ids[0] == 0
    assert not set(ids[1:-1]) & {0, 1, 2, 4}
    wide = SequenceModel(model.model, tokenizer, length=24)
    assert "<mask></s>" in wide._tokens.decode_batch(wide.ids(["<mask></s>"]).ids.tolist())[0]


FULL = "the film about a doctor and good people of an old town"
"""A text that leaves no place of padding."""

MATES = ([""] * 7, [FULL] * 7, ["a", *[FULL] * 6], [FULL] * 3 + [""] * 4)


def alike(model, text, mates=MATES):
    """Whether a text has one latent, bit for bit, in every place of batches with any of these mates."""
    batches = [([*some[:place], text, *some[place:]], place) for some in mates for place in (0, 3, 7)]
    latents = [model.encode(batch)[place].tobytes() for batch, place in batches]
    return len(set(latents)) == 1


@pytest.mark.parametrize("length", [LENGTH, 24])
@pytest.mark.parametrize("text", [FULL, "good film", ""])
def test_a_latent_is_bit_equal_whatever_its_mates(bart, tokenizer, text, length):
    """Batches without padding among them, also where the model has no more places than l."""
    model = SequenceModel(bart, tokenizer, length=length)
    mates = [[mate if mate in ("", "a") else (FULL + " ") * 5 for mate in some] for some in MATES]
    assert model.ids([(FULL + " ") * 5]).mask.sum() == (length if length < 24 else 23)
    assert alike(model, text, mates)


class AnotherPath:
    """Planted: as libraries do, another path where no row of a batch is padded; here its numbers differ plainly."""

    def __init__(self, model):
        self._model = model

    def __getattr__(self, name):
        return getattr(self._model, name)

    def get_encoder(self):
        def encode(input_ids, attention_mask):
            made = self._model.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)
            made.last_hidden_state += float(attention_mask.all())
            return made

        return encode


@pytest.mark.parametrize("length", [LENGTH, 24])
def test_a_planted_path_of_unpadded_batches_is_taken_by_no_batch(bart, tokenizer, length, monkeypatch):
    model = SequenceModel(AnotherPath(bart), tokenizer, length=length)
    full = (FULL + " ") * 5
    mates = [[mate if mate == "" else full for mate in some] for some in MATES]
    assert alike(model, full, mates)
    monkeypatch.setattr(SequenceModel, "padded", lambda self, read: read)
    model._tokens = sequence_model._padding(tokenizer, length, most=length)
    assert not alike(model, full, mates), "as it was: the test above sees it every time"


def test_a_length_that_takes_all_places_has_another_version(folder):
    """One id less is read of a long text there; every other configuration stays the same."""
    made = {length: DPBart(epsilon=500.0, n_rec=10, model=str(folder), length=length) for length in (2, 23, 24)}
    assert {length: one.configuration()["mechanism_version"] for length, one in made.items()} == {2: 1, 23: 1, 24: 2}


def test_a_decoded_text_is_the_same_whatever_its_mates(model):
    latents = noise(3)
    whole = model.decode(latents)
    order = np.random.default_rng(1).permutation(len(latents))
    assert model.decode(latents[order]) == [whole[place] for place in order]
    assert len(set(whole)) > 1


class Spy:
    """The model itself, and the attention masks of its decoder."""

    def __init__(self, model):
        self._model, self.seen = model, []

    def __getattr__(self, name):
        return getattr(self._model, name)

    def __call__(self, **given):
        self.seen.append((given["attention_mask"], given["encoder_outputs"].last_hidden_state.shape))
        return self._model(**given)


def spied(model, latents):
    spy = Spy(model.model)
    beam_search(AnyDecoding(spy, model.states(torch.from_numpy(latents))), Search(3, LENGTH - 1, 2))
    return spy.seen


def blind(seen):
    """Whether the decoder attended to every position of every record at every step, in constant shapes."""
    return all(
        bool((mask == 1).all()) and shape[1:] == (LENGTH, WIDTH) and mask.shape[1] == LENGTH for mask, shape in seen
    )


def test_the_decoder_attends_to_every_position(model):
    seen = spied(model, noise(5))
    assert len(seen) == LENGTH - 1
    assert blind(seen)


def test_a_planted_encoder_mask_is_caught(model, bart, tokenizer, monkeypatch):
    mask = model.ids(TEXTS).mask
    monkeypatch.setattr(sequence_model, "KIND", "any other architecture")
    unseeing = SequenceModel(blind_encoder(bart), tokenizer, length=LENGTH, beams=2)
    equal = np.repeat(unseeing.encode(["", *TEXTS[1:]])[:1], len(TEXTS), 0) * 30 + noise(5)[:1]
    assert len(set(unseeing.decode(equal))) == 1
    monkeypatch.setattr(
        sequence_model, "everywhere", lambda states: mask.repeat_interleave(len(states) // len(mask), 0)
    )
    assert not blind(spied(model, noise(5)))
    assert len(set(unseeing.decode(equal))) > 1  # equal latents, texts of other lengths: the mask comes out


@precisely
def test_the_search_is_that_of_transformers(model):
    states = model.states(torch.from_numpy(noise(7)))
    settings = transformers.GenerationConfig(
        num_beams=3, max_length=LENGTH, decoder_start_token_id=2, eos_token_id=2, pad_token_id=1, bos_token_id=0
    )
    generated = model.model.generate(
        encoder_outputs=BaseModelOutput(last_hidden_state=states),
        attention_mask=torch.ones(states.shape[:2], dtype=torch.int64, device=states.device),
        generation_config=settings,
    ).tolist()
    ours = beam_search(AnyDecoding(model.model, states), Search(3, LENGTH - 1, 2)).tolist()
    until_end = lambda ids: ids[: ids.index(2)] if 2 in ids else [number for number in ids if number != 1]
    assert [until_end(row) for row in ours] == [until_end(row[1:]) for row in generated]


def both_walks(model, beams):
    """Our walk through BART's layers, and transformers' walk."""
    states = model.states(torch.from_numpy(noise(11)))
    return BartDecoding(model.model, states, beams, LENGTH - 1), AnyDecoding(model.model, states)


@pytest.mark.parametrize("beams", [1, 2, 5])
def test_our_walk_through_barts_layers_scores_as_transformers_does(model, beams):
    rows = torch.arange(len(TEXTS) * beams, device=model.model.device)
    crossed = rows.view(-1, beams).flip(1).flatten()  # beams of a record change places

    def scores(walk):
        yield walk.first()
        walk.spread(beams)
        for step in range(LENGTH - 2):
            yield walk.following(rows + 9 * step, crossed)

    tolerance = 1e-4 if model.model.dtype is torch.float32 else 0.3
    for ours, theirs in zip(*map(scores, both_walks(model, beams)), strict=True):
        assert theirs.std() > 0.2
        assert torch.allclose(ours, theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", [BartDecoding, AnyDecoding])
def test_every_position_moves_what_is_decoded(model, kind):
    """Nothing of the latents is masked away, at the first step and at later ones."""
    states = model.states(torch.from_numpy(noise(13)))
    more = (1, 2) if kind is BartDecoding else ()

    def scores(given):
        decoding = kind(model.model, given, *more)
        first = decoding.first().clone()
        decoding.spread(1)
        rows = torch.arange(len(given), device=given.device)
        return first, decoding.following(torch.full_like(rows, 9), rows).clone()

    before = scores(states)
    for position in range(LENGTH):
        moved = states.clone()
        moved[:, position] += 1
        for one, other in zip(scores(moved), before, strict=True):
            assert (one != other).any(dim=1).all()


def test_batches_have_as_many_records_as_beams_allow(bart, tokenizer):
    rows = {beams: SequenceModel(bart, tokenizer, length=LENGTH, beams=beams).rows for beams in (1, 4, 10, 64)}
    assert rows == {1: 64, 4: 32, 10: 16, 64: 16}


def test_keys_and_values_of_latents_are_computed_once_per_record(model):
    layer = model.model.get_decoder().layers[0].encoder_attn
    calls = []
    handle = layer.k_proj.register_forward_hook(lambda module, given, out: calls.append(given[0].shape))
    try:
        model.decode(noise(9))
    finally:
        handle.remove()
    assert [tuple(shape) for shape in calls] == [(len(TEXTS), LENGTH, WIDTH)]


def test_pruned_columns_are_excluded_and_come_back_as_exact_zeros(bart, tokenizer):
    kept = [1, 4, 5, 15]
    pruned, whole = (SequenceModel(bart, tokenizer, length=LENGTH, kept=columns) for columns in (kept, None))
    assert pruned.size == LENGTH * 4
    latents = pruned.encode(TEXTS)
    assert np.array_equal(latents, whole.encode(TEXTS).reshape(-1, LENGTH, WIDTH)[:, :, kept].reshape(len(TEXTS), -1))
    states = pruned.states(torch.from_numpy(latents))
    assert np.array_equal(states[:, :, kept].flatten(1).float().cpu().numpy(), latents)
    others = [column for column in range(WIDTH) if column not in kept]
    assert (states[:, :, others] == 0).all()


def test_a_length_beyond_the_models_is_refused(bart, tokenizer):
    with pytest.raises(PolicyError, match="up to 24"):
        SequenceModel(bart, tokenizer, length=25)
