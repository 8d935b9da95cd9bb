"""A shuffled release is measured as a whole: how near counted shares of labels come to the true ones."""

from collections import Counter

import numpy as np
import pytest

from dptext_etl.errors import InputError, PolicyError
from dptext_etl.runner import scan_published
from tests.command_line import dptext
from tests.synthetic_runs import CAP, labeled

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (extra: eval)")

from dptext_etl_eval.baselines import label_names
from dptext_etl_eval.published import claimed, evidence_of

SURROGATE = {"name": "surrogate", "epsilon": 6.0, "corpus": "example"}


@pytest.fixture
def make_shuffled(make_job, reviews):
    """Make a job whose policy publishes texts of three topics shuffled; its raw table keeps their labels."""

    def made(form="rows", **more):
        job = make_job(form, labeled(reviews()))
        job.values |= {"column": [{"name": "review", "mechanism": SURROGATE}], "keep": [], "cap": CAP}
        job.values["shuffled"] = {"rows": 30, "delta": 1e-7, "form": form, **more}
        return job

    return made


LABELS = {"rows": 3, "labels": {"column": "topic", "values": ["music", "other"]}}


@pytest.mark.parametrize(("form", "more"), [("rows", {}), ("counts", {}), ("counts", LABELS)])
def test_shares_are_compared_with_the_true_ones(make_shuffled, reviews, tmp_path, form, more):
    job = make_shuffled(form, **more)
    job.run()
    (found,) = evidence_of(job.policy(), tmp_path / "report", label="topic", rows=10_000)
    kept = labeled(reviews()).select("review", "topic").drop_nulls()
    assert found.rows == found.of == kept.height
    labels = sorted(set(kept["topic"]))
    table = scan_published(str(job.folder / "published")).collect().drop_nulls()
    often = [1] * table.height if form == "rows" else table["count"].to_list()
    draws = [text for text, count in zip(table["review"], often, strict=True) for _ in range(count)]
    guessed = Counter(label_names(np.array(labels), draws).tolist())
    true = Counter(kept["topic"])
    distance = sum(abs(guessed[name] / len(draws) - true[name] / kept.height) for name in labels) / 2
    (measured,) = found.metrics
    scores = {score.what: score for score in measured.scores}
    assert scores["distance of counted shares"].value == pytest.approx(distance)
    assert 0 <= scores["distance of neighborhood shares"].value <= 1
    assert scores["distance of counted shares"].blind is not None
    assert found.attacks == ()
    (part,) = evidence_of(job.policy(), tmp_path / "report", label="topic", rows=20)
    assert {score.what: score.value for score in part.metrics[0].scores} == {
        what: score.value for what, score in scores.items()
    }
    assert float(found.cost["epsilon of a record"]) <= SURROGATE["epsilon"]


def test_what_compares_rows_is_refused_by_name(make_shuffled, tmp_path):
    job = make_shuffled()
    with pytest.raises(PolicyError, match="no label column was named"):
        list(evidence_of(job.policy(), tmp_path / "report"))
    with pytest.raises(PolicyError, match="--attribute, --show-texts: no text of a shuffled release"):
        list(evidence_of(job.policy(), tmp_path / "report", label="topic", attribute="stars", show_texts=True))
    job.run()
    with pytest.raises(PolicyError, match="a shuffled release is published there"):
        claimed(str(job.folder / "published"))
    with pytest.raises(InputError, match="no column 'topics'"):
        list(evidence_of(job.policy(), tmp_path / "report", label="topics"))


def test_the_command_prints_shares_and_cost(make_shuffled, tmp_path, sentinel):
    job = make_shuffled()
    job.run()
    done = dptext("evaluate", job.write_policy(), "--label", "topic", "--out", tmp_path / "report")
    assert done.exit_code == 0, done.output
    printed = " ".join(done.output.split())
    assert "The distance of counted shares of labels from the true ones is" in printed
    assert ("Use the release to count shares of labels" in printed) != ("Do not publish. Use the corpus" in printed)
    assert "of the corpus by itself" in printed
    assert "distance of neighborhood shares" in (tmp_path / "report" / "evidence.html").read_text()
    assert sentinel not in done.output + (tmp_path / "report" / "evidence.html").read_text()
