"""The classifier of a noisy statistic: its formula, its file, and the labels that it gives to a reader's texts."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dptext_etl.corpora import Corpus
from dptext_etl.errors import ArtifactError, InputError
from dptext_etl.families.aggregate import Classifier, describe, linear_discriminant
from dptext_etl.families.aggregate.classifier import floored, name_vectors
from dptext_etl.families.aggregate.contributions import unpacked
from dptext_etl.polars import label

from .test_aggregate_table import LABELS, SAYS, released

TEXTS = [text for texts in SAYS.values() for text in texts]
TRUTH = [label for label, texts in SAYS.items() for _ in texts]


@pytest.fixture(scope="module")
def noisy():
    return released(describe("example", epsilon=4.0, delta=1e-6, labels=LABELS), 300)


@pytest.fixture(scope="module")
def learned(noisy):
    return linear_discriminant(noisy)


@pytest.mark.parametrize("copies", [0, 3, 300])
@pytest.mark.parametrize("labels", [LABELS, LABELS[:2], (*LABELS, *map(str, range(12)))], ids=len)
def test_the_classifier_follows_its_formula(copies, labels):
    """docs/spec/synthetic.md#classifier, written out label by label with general inverses."""
    noisy = released(describe("example", epsilon=4.0, delta=1e-6, labels=labels), copies)
    found, sigma, d = linear_discriminant(noisy), noisy.statistic.sigma, noisy.statistic.projection.width
    n, counts = max(1.0, noisy.sums[:, -1].sum() / noisy.statistic.count_step), floored(noisy.counts[: len(labels)])
    share, added = (1.0, 4.0) if len(labels) >= 16 else (0.02, 1.0)
    mean = noisy.vectors.sum(axis=0) / n
    of_noise = len(noisy.vectors) * d * sigma**2 / n**2
    mean *= max(0.0, 1 - of_noise / (mean**2).sum())
    before = noisy.moment / n - np.outer(mean, mean)
    typical = np.clip(np.trace(before), 0.1, 1.0) / d
    values, axes = np.linalg.eigh(before)
    noise = (d**2 + d) * sigma**2 / n**2 + (d * typical) ** 2 / n
    kept = max(0.0, 1 - noise / ((values - typical) ** 2).sum())
    spread = axes @ np.diag((typical + kept * (values - typical)).clip(0.0) + added * typical) @ axes.T
    names = name_vectors(noisy.statistic, {})
    centered = names - names.mean(axis=0) if len(labels) > 2 else names
    slopes, offsets = [], []
    for at in range(len(labels)):
        prior = np.linalg.inv(spread * share * d * typical / np.trace(spread))
        measured, named = counts[at] ** 2 / sigma**2, names[at].any() / (0.8 * typical)
        seen = measured * (noisy.vectors[at] / counts[at] - mean) + named * centered[at]
        middle = np.linalg.solve(prior + (measured + named) * np.eye(d), seen)
        slopes.append(np.linalg.solve(spread, middle))
        offsets.append(-slopes[-1] @ middle / 2)
    slopes = np.array(slopes)
    for actual, expected in ((found.mean, mean), (found.slopes, slopes), (found.offsets, np.array(offsets))):
        assert np.abs(actual - expected).max() <= 2**-16 * np.abs(expected).max() + 1e-9


def test_labels_and_shares_agree_with_the_scores(learned):
    vectors = learned.encode(TEXTS)
    scores, shares = learned.scores(vectors), learned.predict_proba(vectors)
    assert learned.predict(vectors) == TRUTH
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert np.allclose(np.log(shares) - np.log(shares[:, :1]), scores - scores[:, :1])
    points = learned.projection.contributions(vectors) / learned.projection.clip
    assert np.allclose(scores, (points - learned.mean) @ learned.slopes.T + learned.offsets)


def test_the_file_holds_the_whole_classifier_and_equal_ones_have_equal_bytes(noisy, learned, tmp_path):
    again = linear_discriminant(unpacked(noisy.statistic, noisy.sums.tobytes() + noisy.moments.tobytes()))
    assert again.content() == learned.content()
    (tmp_path / "classifier.safetensors").write_bytes(learned.content())
    read = Classifier.read(tmp_path / "classifier.safetensors")
    assert (read.labels, read.corpus, read.name, read.n_max) == (
        learned.labels, noisy.statistic.corpus.sha256, "example", noisy.statistic.n_max
    )  # fmt: skip
    vectors = read.encode(TEXTS)
    assert np.array_equal(read.scores(vectors), learned.scores(vectors))
    assert read.content() == learned.content()
    for wrong in (b"", b"x" * 100, learned.content().replace(b"dptext-classifier/1", b"dptext-classifier/2")):
        with pytest.raises(ArtifactError):
            Classifier.read(wrong)


def test_last_bits_of_floats_do_not_change_the_file(noisy, learned, monkeypatch):
    """Machines may round differently: a later run on another one must not publish a new version."""
    real = np.linalg.eigh

    def other(matrix):
        values, axes = real(matrix)
        return values * (1 + 1e-15), axes * (1 - 1e-15)

    monkeypatch.setattr(np.linalg, "eigh", other)
    assert linear_discriminant(noisy).content() == learned.content()


def test_texts_need_the_corpus_of_the_classifier(learned, tmp_path):
    Corpus.save(tmp_path / "other", ["a text", "another text"], {"licence": "CC0", "provenance": "made for tests"},
                encoder=Corpus.open("example").encoder)  # fmt: skip
    with pytest.raises(ArtifactError, match="not the one of the classifier") as caught:
        learned.encode(TEXTS, str(tmp_path / "other"))
    assert learned.corpus in str(caught.value)
    absent = Classifier(**{**vars(learned), "name": "nowhere"})
    with pytest.raises(ArtifactError, match="is not installed"):
        absent.encode(TEXTS)
    assert np.array_equal(absent.encode(TEXTS, "example"), learned.encode(TEXTS))
    for wrong in (np.zeros((2, 3), np.int8), learned.encode(TEXTS).astype(np.int64)):
        with pytest.raises(InputError, match="vectors are int8"):
            learned.predict(wrong)


def test_a_column_of_polars_is_labeled_and_nulls_stay(learned):
    texts = pl.DataFrame({"text": [TEXTS[0], None, TEXTS[-1]]})
    expected = [TRUTH[0], None, TRUTH[-1]]
    for frame in (texts, texts.with_columns(pl.col("text").cast(pl.Categorical)), texts.lazy()):
        done = frame.lazy().select(label("text", learned), kept=label(pl.col("text"), learned, "example")).collect()
        assert done.to_dict(as_series=False) == {"text": expected, "kept": expected}
    assert learned.label(pa.array([], pa.string())).to_pylist() == []
    with pytest.raises(InputError):
        learned.label(pa.array([[1]]))


def test_a_statistic_without_labels_has_no_classifier():
    with pytest.raises(InputError, match="has no labels"):
        linear_discriminant(released(describe("example", epsilon=4.0, delta=1e-6), 0))
