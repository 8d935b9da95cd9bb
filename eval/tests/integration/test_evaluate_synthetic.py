"""A synthetic table is measured as a whole: the use of a classifier that learns from it, next to free ones."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from dptext_etl.errors import InputError, PolicyError
from dptext_etl.families.aggregate import linear_discriminant, read_statistic, scored
from dptext_etl.policy.synthetic import CLAIM
from tests.command_line import dptext
from tests.synthetic_runs import CELLED, SYNTHETIC, WITHOUT, graded, labeled

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (extra: eval)")

from dptext_etl_eval.baselines import BETTER, Asked
from dptext_etl_eval.classifier import counted, fit
from dptext_etl_eval.published import columns_of, evidence_of
from dptext_etl_eval.readers import LINES, SCORES, VECTOR_SCORES, VECTORS, WORDS
from dptext_etl_eval.report import in_short
from dptext_etl_eval.statistics import macro_f1
from dptext_etl_eval.verdict import verdict

ALL = 10_000
IMPORTS = """
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
"""


@pytest.fixture
def published(make_synthetic):
    job = make_synthetic()
    job.run()
    return job


def figures(found):
    (measured,) = found.metrics
    return {score.what: score for score in measured.scores}


def test_every_figure_is_that_of_its_own_learner(published, reviews, tmp_path):
    (found,) = evidence_of(published.policy(), tmp_path / "report", rows=ALL)
    kept = (
        labeled(reviews())
        .drop_nulls("review")
        .with_columns(topic=pl.when(pl.col("topic").is_in(["music", "money"])).then("topic").otherwise(pl.lit("other")))
    )
    assert found.rows == found.of == kept.height
    texts, truth = kept["review"].to_list(), kept["topic"].to_numpy().astype(str)
    table = pl.read_parquet(published.folder / "published" / "*.parquet")
    topics = table["topic"].to_numpy().astype(str)
    words = fit(counted(table["review"].to_list()), topics)(counted(texts))
    statistic = read_statistic(published.folder / "published.manifest.json", "example")
    classifier = linear_discriminant(statistic)
    labels = np.array(classifier.predict(classifier.encode(texts, "example")))
    said = figures(found)
    assert said["macro-F1, linear discriminant of the statistic"].value == pytest.approx(macro_f1(truth, labels))
    assert said[f"macro-F1, {WORDS}"].value == pytest.approx(macro_f1(truth, words))
    for (
        name,
        lines,
    ) in LINES.items():  # words are cut a little differently outside
        given = SimpleNamespace(text=table["review"].to_list(), label=topics)
        if name in {SCORES, VECTOR_SCORES}:
            rows = scored(statistic)
            given = SimpleNamespace(text=rows["text"].to_pylist(), scores=rows["scores"].to_pylist())
        place: dict = {"np": np, "table": given, "texts": texts, "classifier": classifier}
        exec("\n".join((IMPORTS, *lines)), place)
        near = 0.01 if name in {VECTORS, VECTOR_SCORES} else 0.1
        assert said[f"macro-F1, {name}"].value == pytest.approx(macro_f1(truth, np.array(place["labels"])), abs=near)
    assert set(said) >= {"macro-F1, label names", "macro-F1, public data"}
    assert found.attacks == ()
    from dptext_etl_eval.measure import attacks

    assert set(found.excluded) >= {attack.title for attack in attacks()}


def test_the_cells_of_several_columns_are_the_labels(make_synthetic, reviews, tmp_path):
    job = make_synthetic(synthetic=CELLED, frame=graded(reviews()))
    job.run()
    public = graded(reviews()).select("review", "topic", "grade").drop_nulls()
    public.write_parquet(tmp_path / "public.parquet")
    given = {"rows": ALL, "free_guesses": Asked(public=str(tmp_path / "public.parquet"))}
    (found,) = evidence_of(job.policy(), tmp_path / "report", **given)
    assert found.rows == labeled(reviews())["review"].drop_nulls().len()
    said = figures(found)
    assert 0 < said["macro-F1, learned from the synthetic table"].value <= 1
    assert said["macro-F1, public labeled texts"].value > 0


def test_a_table_is_tested_on_rows_that_were_not_summed(published, reviews, tmp_path):
    other = labeled(reviews()).drop_nulls("review").head(60).with_columns(topic=pl.Series(["music", "money"] * 30))
    other.write_parquet(tmp_path / "tested.parquet")
    texts = ("an album for my party", "the bank took my money", "a doctor for my back") * 5
    written = pl.DataFrame({"text": texts, "label": ("music", "money", "other") * 5})
    written.write_parquet(tmp_path / "written.parquet")
    asked = Asked(written=str(tmp_path / "written.parquet"))
    (found,) = evidence_of(
        published.policy(), tmp_path / "report", tested=str(tmp_path / "tested.parquet"), free_guesses=asked
    )
    assert found.rows == found.of == 60
    learned = fit(counted(texts), written["label"].to_numpy().astype(str))(counted(other["review"].to_list()))
    said = figures(found)["macro-F1, written texts"].value
    assert said == pytest.approx(macro_f1(np.array(["music", "money"] * 30), learned))


def test_the_cost_is_that_of_the_ledger(published, tmp_path):
    (found,) = evidence_of(published.policy(), tmp_path / "report")
    spend = published.policy().statistic.charge(CLAIM)
    assert found.cost["epsilon of the whole table for one record"] == "2"
    assert float(found.cost["epsilon of the whole table for a person"]) >= 6 * spend.eps_approx / 1e6
    assert any("a person at most" in line for line in in_short(found))


def test_the_command_compares_with_public_texts(published, tmp_path, sentinel, save):
    path = published.write_policy()
    texts = {"music": "an album for my party", "money": "the bank took my money", "other": "a doctor for my back"}
    public = pl.DataFrame({"review": list(texts.values()) * 5, "topic": list(texts) * 5})
    save(public, tmp_path / "public.parquet")
    done = dptext("evaluate", path, "--public", tmp_path / "public.parquet", "--out", tmp_path / "report")
    assert done.exit_code == 0, done.output
    assert "public labeled texts" in done.output
    assert "The whole table costs a record epsilon 2" in done.output
    page = (tmp_path / "report" / "evidence.html").read_text()
    assert sentinel not in done.output + page
    for option, said in (("--attribute", "nearest_neighbour"), ("--label", "labels of 'topic' only")):
        refused = dptext("evaluate", path, option, "stars", "--out", tmp_path / "other")
        assert (refused.exit_code, said in refused.output) == (5, True), refused.output


def test_what_cannot_be_measured_is_refused_by_name(make_synthetic, published, tmp_path):
    out = tmp_path / "report"
    with pytest.raises(PolicyError, match="has no labels"):
        list(evidence_of(make_synthetic("without", synthetic=WITHOUT).policy(), out))
    with pytest.raises(InputError, match="no synthetic table is published"):
        list(evidence_of(make_synthetic("unpublished").policy(), out))
    with pytest.raises(PolicyError, match="publishes a synthetic table"):
        list(columns_of(published.policy(), out))
    raw, sink = published.folder / "raw.parquet", published.folder / "published"
    done = dptext("evaluate", raw, sink, "--id", "id", "--text", "review", "--out", out)
    assert (done.exit_code, "give its policy" in done.output) == (5, True), done.output


def test_a_table_that_brings_nothing_says_so(make_synthetic, reviews, tmp_path):
    """Labels that have nothing to do with texts cannot be learned, and their names are as good."""
    turned = labeled(reviews()).with_columns(topic=pl.Series(["music", "money"] * 120))
    job = make_synthetic(
        frame=turned, synthetic={**SYNTHETIC, "labels": {"column": "topic", "values": ["music", "money"]}}
    )
    job.run()
    (found,) = evidence_of(job.policy(), tmp_path / "report", rows=ALL)
    said = figures(found)
    free = max(said[f"macro-F1, {what}"].value for what in ("label names", "public data"))
    best = max(
        said[f"macro-F1, {what}"].value
        for what in ("learned from the synthetic table", "linear discriminant of the statistic")
    )
    assert verdict(found).startswith("Do not publish.") == (best <= max(free, 1 / 2) + BETTER)
