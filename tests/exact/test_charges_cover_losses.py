"""A mechanism that charges less than its draws lose is refused: when its table is built, when it is opened, and by
every function that derives a key for it. The losses here are planted."""

import json
import shutil
from fractions import Fraction

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from dptext_etl import artifacts
from dptext_etl.accounting import PureDraws, spend
from dptext_etl.corpora.frequencies import Weights
from dptext_etl.embeddings.vectors import write_grid
from dptext_etl.errors import ArtifactError, PolicyError
from dptext_etl.families.stored_distributions import TableMechanism, TableParts
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.madlib import Madlib
from dptext_etl.mechanisms.santext import SanText
from dptext_etl.mechanisms.surrogate import Surrogate
from dptext_etl.sampling import integer_weights

WORDS = tuple(f"w{number:02d}" for number in range(40))
LESS = "charges less than its draws lose"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(artifacts.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def response(epsilon, size=40):
    """Randomized response over words: any two rows differ by exactly epsilon."""
    top = 2**40
    least = int(np.ceil(top * np.exp(-epsilon)))
    return np.where(np.eye(size, dtype=bool), top, least).astype(np.uint64)


class Plain(TableMechanism):
    """A correct table of one set."""

    loses: float = 4.0
    row: int | None = None
    sets: int = 1
    kept: tuple[str, ...] = ()

    @property
    def bounded_range(self):
        return False

    def table_description(self):
        return {"mechanism": "plain", "loses": self.loses, "row": self.row, "sets": self.sets, "kept": list(self.kept)}

    def parts(self):
        size = 40 // self.sets
        weights = [response(self.loses if self.row is None else 4.0, size) for _ in range(self.sets)]
        if self.row is not None:
            weights[-1][self.row] = response(self.loses, size)[self.row]
        members = [np.arange(at * size, (at + 1) * size) for at in range(self.sets)]
        return TableParts.partition(WORDS, members, weights, kept=self.kept)

    @classmethod
    def example(cls):
        return cls(epsilon=4.0)


class Clustered(Plain):
    sets: int = 2

    @property
    def word_disclosures(self):
        return frozenset({Disclosure.CLUSTER})


def test_an_exact_charge_passes_and_is_stated():
    for kind in (Plain, Clustered):
        mechanism = kind.example()
        assert mechanism.epsilon_table == pytest.approx(4.0, abs=1e-8)
        assert mechanism.cfg()
        assert mechanism.spend(3).eps_pure == 12_000_000


@pytest.mark.parametrize(
    ("kind", "planted"),
    [
        (Plain, {"loses": 8.0}),
        (Plain, {"loses": 8.0, "row": 7}),
        (Clustered, {"loses": 8.0}),
        (Clustered, {"loses": 4.001, "row": 3}),
    ],
)
def test_a_table_that_loses_more_than_it_charges_is_not_built(kind, planted, cache):
    mechanism = kind(epsilon=4.0, **planted)
    for use in (lambda: mechanism.table, mechanism.cfg, lambda: mechanism.transition("w01"), mechanism.input_words):
        with pytest.raises(PolicyError, match=LESS):
            use()
    assert [*cache.iterdir()] == []


def test_sets_that_nothing_discloses_and_words_that_stay_have_no_finite_loss():
    with pytest.raises(PolicyError, match="an output can rule a word out"):
        _ = Plain(epsilon=4.0, sets=2).table
    with pytest.raises(PolicyError, match="releases 1 words unchanged"):
        _ = Plain(epsilon=4.0, kept=("the",)).table


@pytest.mark.parametrize("sets", [[], [np.arange(2)]])
def test_an_empty_vocabulary_is_refused(sets):
    class Empty(Plain):
        def parts(self):
            weights = [np.ones((0, 2), np.uint64)] * len(sets)
            return TableParts((), sets, np.zeros(0, np.uint32), weights, outputs=WORDS[:2])

    with pytest.raises(PolicyError, match="the vocabulary of test_charges_cover_losses is empty"):
        Empty.example().cfg()


@pytest.mark.parametrize("kind", [CusText, SanText, Madlib, Diffractor])
@pytest.mark.parametrize("name", ["none.txt", "header.txt", "none.safetensors"])
def test_vectors_without_a_word_are_refused(tmp_path, kind, name):
    path = tmp_path / name
    if path.suffix == ".txt":
        path.write_text("0 3\n" if name == "header.txt" else "")
    else:
        write_grid(path, (), np.zeros((0, 3), np.int16), {"scale": "0.01"})
    with pytest.raises(ArtifactError, match="holds no word vectors"):
        kind(epsilon=1.0, vectors=str(path)).cfg()


def test_an_unknown_word_is_compared_with_every_word():
    class Skewed(Plain):
        def parts(self):
            rows = np.tile(response(4.0)[0], (40, 1))  # no two known words differ; an unknown one is uniform
            return TableParts.partition(WORDS, [np.arange(40)], [rows])

    with pytest.raises(PolicyError, match=LESS):
        Skewed(epsilon=0.5).cfg()
    assert Skewed(epsilon=4.0).epsilon_table < 4.0


def test_a_claim_of_bounded_range_is_compared_with_the_weights():
    class Bounded(Plain):
        @property
        def bounded_range(self):
            return True

    with pytest.raises(PolicyError, match="rho of 1 draw:"):  # e^4 between the weights of a row: a range of 8
        Bounded(epsilon=4.0).cfg()

    class Exponential(Bounded):
        def table_description(self):
            return {"mechanism": "exponential"}

        def parts(self):
            return TableParts.partition(WORDS, [np.arange(40)], [integer_weights(np.eye(40), 4.0)])

    assert Exponential(epsilon=4.0).cfg()


@pytest.mark.parametrize("component", ["eps_pure", "eps_tight", "rho"])
def test_the_charge_of_a_text_is_compared_and_not_a_statement_about_one_draw(component):
    class Forgetful(Plain):
        def event(self, positions):
            if component == "eps_pure":  # later words are free
                return PureDraws(4, min(positions, 1), range_bounded=False)
            if component == "eps_tight":
                return PureDraws(4, positions, Fraction(1), range_bounded=False)
            return PureDraws(4, positions, range_bounded=True)

    with pytest.raises(PolicyError, match=f"{component} of"):
        Forgetful(epsilon=4.0).cfg()


def test_an_event_that_states_a_larger_loss_than_its_charge_has_no_spend():
    guarantee = Plain.example().guarantee
    with pytest.raises(PolicyError, match="charged 4, and loses 8"):
        spend(guarantee, PureDraws(4.0, 1, Fraction(8)), 1)


BUDGET = {"scores": ("ic",), "total": 40.0, "eps_hi": 10.0}


def test_words_with_a_divided_budget():
    class Dear(CusText):
        @property
        def loss_range(self):
            return 0.5  # scores go from 0 to 1

    class Far(Diffractor):
        @property
        def loss_range(self):
            return super().loss_range / 2

    assert CusText(limit=200, allocation=BUDGET).cfg()
    with pytest.raises(PolicyError, match=LESS):
        Dear(limit=200, allocation=BUDGET).cfg()
    steps = {**BUDGET, "scores": (), "template": (2.0, 1.0)}
    assert Diffractor(variant="geometric", limit=200, allocation=steps).cfg()
    for variant, budget in (("geometric", steps), ("tem", BUDGET)):
        with pytest.raises(PolicyError, match=LESS):
            Far(variant=variant, limit=200, allocation=budget).cfg()


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (Diffractor, {"epsilon": 2.0, "limit": 200}),
        (Diffractor, {"epsilon": 2.0, "limit": 200, "walks": 2}),
        (Diffractor, {"epsilon": 0.01, "limit": 200, "variant": "geometric"}),
        (SanText, {"epsilon": 4.0, "limit": 200}),
        (Madlib, {"epsilon": 4.0, "limit": 200}),
        (CusText, {"epsilon": 4.0, "limit": 200, "length": "disclose"}),
    ],
)
def test_each_family_of_words_compares_its_loss(kind, parameters):
    class Cheap(kind):
        @property
        def epsilon_per_word(self):
            return super().epsilon_per_word / 2

        @property
        def epsilon_tight(self):
            return None

    use = (lambda made: made.spend(1)) if kind is Madlib else (lambda made: made.cfg())
    assert use(kind(**parameters))
    cheap = Cheap(**parameters)
    for _ in range(2):
        with pytest.raises(PolicyError, match=LESS):
            use(cheap)


def test_mechanisms_are_compared_by_their_parameters():
    one, other = (SanText(epsilon=4.0, limit=200) for _ in range(2))
    assert one.cfg() == other.cfg()
    assert (one == other, hash(one) == hash(other)) == (True, True)
    assert one != SanText(epsilon=3.0, limit=200)


def test_a_choice_of_a_public_text_compares_its_loss():
    class Cheap(Surrogate):
        @property
        def weights(self):
            return Weights(1 << 20, 1)

    with pytest.raises(PolicyError, match=r"charged 2, and loses 13\.86"):
        Cheap.example().cfg()


def edited(entry, change):
    """Edit the file of a cache entry by hand, and its record of the hash with it."""
    (file,) = entry.glob("content.*")
    tensors = load_file(file)
    with safe_open(str(file), "numpy") as opened:
        metadata = opened.metadata()
    facts = json.loads(metadata["description"])
    change(tensors, metadata, facts)
    entry.chmod(0o700)
    file.unlink()
    artifacts.save_tensors(file, tensors, {**metadata, "description": json.dumps(facts)})
    record = entry / "about.json"
    stated = json.loads(record.read_bytes())
    record.unlink()
    record.write_bytes(artifacts.canon({**stated, "sha256": artifacts.sha256_file(file)}))


def steeper(tensors, metadata, facts):
    tensors["cumulative"] = tensors["cumulative"].copy()
    tensors["cumulative"][0] //= np.uint64(1000)  # the first weight of one row


def dearer(tensors, metadata, facts):
    law = json.loads(metadata["law"])
    law["tem"]["outside"] //= 1000
    metadata["law"] = json.dumps(law)


def lower(tensors, metadata, facts):
    facts["epsilon_table"] = repr(float(facts["epsilon_table"]) / 2)


def shorter(tensors, metadata, facts):
    facts["places"] -= 100


def steeper_facts(tensors, metadata, facts):
    facts["epsilon_metric"] = "0.1"


@pytest.mark.parametrize(
    ("mechanism", "change", "refused"),
    [
        (CusText(epsilon=2.0, limit=200), steeper, (ArtifactError, "states another epsilon_table")),
        (CusText(epsilon=2.0, limit=200), lower, (ArtifactError, "states another epsilon_table")),
        (Diffractor(epsilon=2.0, limit=200), dearer, (ArtifactError, "states another epsilon_table")),
        (Diffractor(epsilon=2.0, limit=200), lower, (ArtifactError, "states another epsilon_table")),
        (Diffractor(epsilon=2.0, limit=200), steeper_facts, (ArtifactError, "states another epsilon_metric")),
        (Diffractor(epsilon=2.0, limit=200, walks=2), lower, (ArtifactError, "states another epsilon_table")),
        (
            Diffractor(epsilon=0.01, limit=200, variant="geometric"),
            shorter,
            (ArtifactError, "states another places"),
        ),
    ],
)
def test_a_cached_table_that_was_edited_with_its_record_is_refused(mechanism, change, refused):
    entry = mechanism.table.path.parent
    edited(entry, change)
    kind, message = refused
    for use in (lambda other: other.cfg(), lambda other: other.input_words()):
        with pytest.raises(kind, match=message):
            use(mechanism.model_copy(update={"epsilon": mechanism.epsilon}))


def test_a_cached_table_whose_edited_facts_agree_is_still_compared_with_the_charge():
    mechanism = CusText(epsilon=2.0, limit=200)

    def change(tensors, metadata, facts):
        steeper(tensors, metadata, facts)
        facts.pop("epsilon_table")

    edited(mechanism.table.path.parent, change)
    with pytest.raises(PolicyError, match=LESS):
        mechanism.model_copy(update={"epsilon": 2.0}).cfg()


def test_a_cached_table_is_refused_by_its_hash_if_only_its_content_was_edited():
    mechanism = CusText(epsilon=2.0, limit=200)
    file = mechanism.table.path
    copy = file.with_suffix(".copy")
    shutil.copy(file, copy)
    content = bytearray(copy.read_bytes())
    content[-1] ^= 1
    file.unlink()
    file.write_bytes(content)
    with pytest.raises(ArtifactError, match="its hash differs"):
        mechanism.model_copy(update={"epsilon": 2.0}).cfg()
