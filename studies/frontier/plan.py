"""List what `make -C studies frontier` measures: the mechanisms with their variants and budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dptext_etl import available, load
from dptext_etl.mechanism import Mechanism
from frontier.corpora import domain_corpus
from frontier.data import CUTS, DATA, ROOT

GLOVE = str(DATA / "word_vectors" / "glove6b_50d_5k.npz")
COUNTERFITTED = str(DATA / "word_vectors" / "counterfit_300d_30k.npz")
SHIPPED = ROOT / "models" / "dptext_etl_models"
EVERYDAY = "everyday-30k"
LONG = ("IMDb", "blog_gender", "DrugLib", "movie_snippets4")
SENTENCES = ("SST-2", "Snips", "UCI")
SHORT_TEXTS = (*SENTENCES, "movie_snippets4", "pii_synth")
"""Data sets for small models that read the first words of a text only."""
SCORES = {"scores": ["ic", "pos", "ner", "wi", "sd"]}
DIVIDED = "one budget among words"
ADDED = "at once, words added and deleted"
"""Paper 000, Table 4, on fewer texts: a text needs 40 CPU-milliseconds and more."""
FARTHEST = "per word, between the farthest words"
PAPERS, PAPERS_SETS = (1.0, 2.0, 3.0), ("SST-2",)
"""Budgets and data set of CusText's paper, which uses counter-fitted vectors."""


@dataclass(frozen=True)
class Line:
    """A variant of a mechanism at some budgets.

    Attributes:
        mechanism: Its name in the catalog.
        variant: What sets this line apart from others of the mechanism; "" for the plain one.
        reading: The meaning of its epsilon, in words.
        epsilons: Budgets.
        make: Makes the mechanism at a budget, for a data set.
        model: Whether it needs a language model; then fewer texts are measured.
        most: Largest number of texts, for lines that are slow without a model.
        sets: Data sets on which it is measured.
    """

    mechanism: str
    variant: str
    reading: str
    epsilons: Sequence[float]
    make: Callable[[float, str], Mechanism]
    model: bool = False
    most: int = 1_000_000
    sets: Sequence[str] = tuple(CUTS)

    @property
    def title(self) -> str:
        """As the page calls it."""
        return self.mechanism + (f", {self.variant}" if self.variant else "")


def lines(models: dict[str, str]) -> Iterator[Line]:
    """Yield every line of mechanisms that the library has.

    Args:
        models: A model (name or folder) by mechanism, for mechanisms without a small model, or in place of ours.
    """
    made = {
        "surrogate": _surrogate,
        "custext": _custext,
        "diffractor": _diffractor,
        "santext": _santext,
        "madlib": _madlib,
        "dpmlm": _dpmlm,
        "dpbart": _dpbart,
        "adept": _adept,
        "dp_prompt": _generated("dp_prompt", "english-denoiser"),
        "dp_paraphrase": _generated("dp_paraphrase", "english-paraphraser"),
    }
    for name in sorted(available(), key=lambda name: [*made, name].index(name)):
        if name in made:
            yield from made[name](models)


def _surrogate(_: dict[str, str]) -> Iterator[Line]:
    def make(epsilon: float, corpus: str, parts: int = 1) -> Mechanism:
        return load("surrogate")(epsilon=epsilon, corpus=corpus, parts=parts)  # type: ignore[call-arg]

    per = "per text"
    yield Line("surrogate", EVERYDAY, per, (1.0, 2.0, 4.0, 8.0, 16.0), lambda e, _: make(e, EVERYDAY))
    domain = lambda e, name: make(e, str(domain_corpus(name).path))  # noqa: E731
    yield Line("surrogate", "corpus of the domain", per, (1.0, 2.0, 4.0, 8.0, 16.0), domain)
    four = lambda e, _: make(e, EVERYDAY, 4)  # noqa: E731
    yield Line("surrogate", f"{EVERYDAY}, 4 parts", per, (4.0, 8.0, 16.0), four, sets=LONG)


def _custext(_: dict[str, str]) -> Iterator[Line]:
    kind: Any = load("custext")
    per = "per word, within its output set"
    yield Line("custext", "", per, (1.0, 2.0, 5.0, 10.0, 20.0), lambda e, _: kind(epsilon=e))
    divided = lambda e, _: kind(allocation={**SCORES, "total": e})  # noqa: E731
    yield Line("custext", DIVIDED, "per text", (30.0, 60.0, 120.0), divided, sets=SENTENCES)
    yield Line("custext", "plus", per, (1.0, 5.0), lambda e, _: kind(epsilon=e, variant="plus"))
    plain, plus = {"vectors": COUNTERFITTED}, {"vectors": COUNTERFITTED, "variant": "plus"}
    yield Line("custext", "counter-fitted", per, PAPERS, lambda e, _: kind(epsilon=e, **plain), sets=PAPERS_SETS)
    for variant in ("plain", "plus"):
        glove = lambda e, _, variant=variant: kind(epsilon=e, vectors=GLOVE, variant=variant)  # noqa: E731
        name = "GloVe" if variant == "plain" else "plus, GloVe"
        yield Line("custext", name, per, (1.0, 2.0, 3.0), glove, sets=("SST-2",))
    yield Line("custext", "plus, counter-fitted", per, PAPERS, lambda e, _: kind(epsilon=e, **plus), sets=PAPERS_SETS)


def _santext(_: dict[str, str]) -> Iterator[Line]:
    kind: Any = load("santext")
    common: dict[str, Any] = {"vectors": COUNTERFITTED}
    yield Line("santext", "", FARTHEST, (10.0, 20.0, 40.0), lambda e, _: kind.aligned(e), most=200)
    plain = lambda e, _: kind.aligned(e, **common)  # noqa: E731
    yield Line("santext", "counter-fitted", FARTHEST, PAPERS[:2], plain, sets=PAPERS_SETS, most=200)
    plus = lambda e, _: kind.aligned(e, **common).model_copy(update={"variant": "plus"})  # noqa: E731
    yield Line("santext", "plus, p = 0.2, counter-fitted", FARTHEST, PAPERS[:2], plus, sets=PAPERS_SETS, most=200)


def _madlib(_: dict[str, str]) -> Iterator[Line]:
    kind: Any = load("madlib")
    yield Line("madlib", "", FARTHEST, (20.0, 40.0, 80.0), lambda e, _: kind.aligned(e), most=200)


def _diffractor(_: dict[str, str]) -> Iterator[Line]:
    kind: Any = load("diffractor")
    yield Line("diffractor", "TEM", "per word", (5.0, 10.0, 20.0, 40.0), lambda e, _: kind(epsilon=e / 5))
    geometric = {"variant": "geometric"}
    yield Line("diffractor", "geometric", "per place of a list", (0.1, 1.0), lambda e, _: kind(epsilon=e, **geometric))


def _dpmlm(models: dict[str, str]) -> Iterator[Line]:
    kind: Any = load("dpmlm")
    chosen = {"model": models.get("dpmlm", "english-small")}
    few, many, texts = (50.0,), (25.0, 50.0, 100.0), (300.0, 600.0, 1200.0)
    by = f", {chosen['model']}" if "dpmlm" in models else ""
    at_once = {**chosen, "decoding": "parallel"}
    yield Line("dpmlm", f"at once{by}", "per word", many, lambda e, _: kind(epsilon=e, **at_once), True)
    in_turn = lambda e, _: kind(epsilon=e, **chosen)  # noqa: E731
    yield Line("dpmlm", f"one word after the other{by}", "per word", few, in_turn, True, sets=SENTENCES)
    longer = {**at_once, "variant": "plusminus", "addition": 0.25}
    added = lambda e, _: kind(epsilon=e, **longer)  # noqa: E731
    yield Line("dpmlm", f"{ADDED}{by}", "per word", many, added, True, most=200, sets=("movie_snippets4",))
    divided = lambda e, _: kind(allocation={**SCORES, "total": e}, **at_once)  # noqa: E731
    yield Line("dpmlm", f"at once, {DIVIDED}{by}", "per text", texts, divided, True, sets=SENTENCES)


def _dpbart(models: dict[str, str]) -> Iterator[Line]:
    kind: Any = load("dpbart")
    chosen = {"model": models.get("dpbart", "english-autoencoder"), "n_rec": 10_000}
    by = f", {chosen['model']}" if "dpbart" in models else ""
    per, epsilons = "per text, with δ", (500.0, 1000.0, 2500.0)
    yield Line("dpbart", f"CLV{by}", per, epsilons, lambda e, _: kind(epsilon=e, **chosen), True)


def _adept(models: dict[str, str]) -> Iterator[Line]:
    kind: Any = load("adept")
    chosen = {"model": models.get("adept", str(SHIPPED / "english-lstm")), "n_rec": 10_000}
    per, epsilons, sets = "per text, with δ", (100.0, 500.0, 1000.0), SHORT_TEXTS
    variant = models.get("adept", "")
    yield Line("adept", variant, per, epsilons, lambda e, _: kind(epsilon=e, **chosen), True, sets=sets)


def _generated(name: str, small: str) -> Callable[[dict[str, str]], Iterator[Line]]:
    def found(models: dict[str, str]) -> Iterator[Line]:
        kind: Any = load(name)
        chosen = {"model": models.get(name, str(SHIPPED / small)), "l_max": 28}
        per, epsilons, sets = "per token of an answer of 28", (25.0, 50.0, 100.0), SHORT_TEXTS
        variant = models.get(name, "")
        yield Line(name, variant, per, epsilons, lambda e, _: kind(epsilon=e, **chosen), True, sets=sets)

    return found
