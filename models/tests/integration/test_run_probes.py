"""A run of a model that fails: public texts stop it before it spends more; failures on its own texts decide nothing."""

import polars as pl
import pytest

from dptext_etl.checks.text_counts import MODEL_FAILURES
from dptext_etl.engines import run, stage
from dptext_etl.errors import PolicyError
from dptext_etl.ledger import Ledger
from dptext_etl.runner import plan
from dptext_etl_models.inference.masked.model import MaskedModel
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from tests.refusals import same_refusal

pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")

SHARDS, ROWS = 3, 20


@pytest.fixture
def films(make_job):
    texts = ["a good film", "the people of this city saw it again and again", "", None, "work zzqunknownqzz time!"]
    rows = {"id": range(60), "user_id": [i % 7 for i in range(60)], "review": [texts[i % 5] for i in range(60)]}
    mechanism = {"name": "dpmlm", "model": "example-masked", "epsilon": 5.0, "decoding": "parallel"}
    DPMLM(**{name: value for name, value in mechanism.items() if name != "name"}).scorer()  # built while it is whole
    given = {"keep": [], "shard_rows": ROWS, "cap": {"measure": "pure", "epsilon": 1e5}}
    return make_job("films", frame=pl.DataFrame(rows), column=[{"name": "review", "mechanism": mechanism}], **given)


class Model:
    """The model, which fails from some call on, or on rows that hold some token; it counts how often it was asked."""

    def __init__(self, monkeypatch):
        self.calls, self.fails = 0, lambda tokens: False
        forward = MaskedModel.forward

        def watched(model, tokens, *rest):
            self.calls += 1
            if self.fails(tokens):
                raise RuntimeError("inside: zzqunknownqzz")
            return forward(model, tokens, *rest)

        monkeypatch.setattr(MaskedModel, "forward", watched)


@pytest.fixture
def model(monkeypatch):
    return Model(monkeypatch)


def charged(films):
    """Records that the ledger holds, and the committed ones."""
    with Ledger.open(films.policy().ledger.url, create=False) as ledger:
        shown = ledger.reports.show()
    return sum(item["records"] for item in shown), sum(item["committed"] for item in shown)


def failing_from(films, model, checkpoint):
    """Let the model fail after the first shard has passed a checkpoint; return how many records are charged then."""
    seen = []

    def notice(step):
        seen.append(step)
        if step == checkpoint and seen.count(step) == 1:
            model.fails = lambda tokens: True

    with pytest.raises(PolicyError, match="fails on public texts") as caught:
        stage(films.policy(), checkpoint=notice)
    assert "zzqunknownqzz" not in str(caught.value)
    assert caught.value.__context__ is None
    return charged(films)


def test_a_broken_model_is_stopped_before_anything_is_charged(films, model):
    model.fails = lambda tokens: True
    assert "fails on public texts" in same_refusal(films, {}, PolicyError).message
    assert not (films.folder / "ledger.db").exists()
    model.fails = lambda tokens: False
    assert films.run().published_rows == 60


@pytest.mark.parametrize("name", ["/none/of/these", "no-such-model", "empty"])
def test_a_model_that_is_missing_is_foretold(films, name):
    (films.folder / "empty").mkdir()
    model = str(films.folder / "empty") if name == "empty" else name
    mechanism = {"name": "dpmlm", "model": model, "epsilon": 5.0, "clip": [0.0, 1.0]}
    said = []
    for act in (plan, run):
        with pytest.raises(PolicyError, match="model") as caught:
            act(films.policy(column=[{"name": "review", "mechanism": mechanism}]))
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert not (films.folder / "ledger.db").exists()


def test_a_model_that_breaks_between_shards_is_stopped_before_the_next_charge(films, model):
    records, committed = failing_from(films, model, "committed")
    assert records == committed
    assert 0 < committed < 2 * ROWS + 10, "the first shard and its canary rows alone"


def test_a_model_that_breaks_within_a_shard_commits_nothing_of_it(films, model):
    records, committed = failing_from(films, model, "reserved")
    assert committed == 0
    assert 0 < records < 2 * ROWS + 10
    model.fails = lambda tokens: False
    assert films.run().published_rows == 60, "what was charged is taken up"


def test_failures_on_private_texts_are_charged_counted_and_decide_nothing(films, model):
    made = films.policy().column_policies()[0].mechanism
    odd = made.vocabulary.encode(["zzqunknownqzz"])[0]

    def holds(tokens):
        return any(all(piece in row for piece in odd) for row in tokens.tolist())

    model.fails = holds
    summary = films.run()
    assert summary.published_rows == 60
    assert all(gate["passed"] for gate in summary.gates)
    (report,) = [item for item in summary.reports if item["name"] == MODEL_FAILURES]
    assert report["passed"]
    assert report["counts"]["texts"] >= 12, "and canary rows of foreign words, if they spell such a text"
    assert report["counts"]["draws"] >= 3 * 12
    manifests = list(films.folder.glob("published*manifest*.json"))
    assert manifests
    assert not any(MODEL_FAILURES in path.read_text() for path in manifests), "the count stays inside the boundary"
    assert charged(films)[0] == charged(films)[1] >= 60


def test_a_run_without_failures_reports_none(films, model):
    assert MODEL_FAILURES not in {item["name"] for item in films.run().reports}


def test_a_second_run_needs_no_model_costs_nothing_and_gives_the_same_bytes(films, model):
    films.run()
    files, before = films.files(), charged(films)
    films.forget_that_nothing_changed()
    model.calls, model.fails = 0, lambda tokens: True
    again = films.run()
    assert (again.published_rows, again.rows["new"], again.changed) == (60, 0, False)
    assert (model.calls, films.files(), charged(films)) == (0, files, before)
    with films.ledger() as ledger:
        assert ledger.verify().ok


def test_a_run_that_refuses_over_its_cap_gives_back_what_it_reserved(films, model):
    """Then all is charged first: the model breaks meanwhile, and nothing stays charged."""
    reserved = []

    def notice(step):
        reserved.append(step)
        if reserved.count("reserved") == 2:
            model.fails = lambda tokens: True

    with pytest.raises(PolicyError, match="fails on public texts"):
        stage(films.policy(on_cap="refuse"), checkpoint=notice)
    with Ledger.open(films.policy().ledger.url, create=False) as ledger:
        (shown,) = ledger.reports.show()
    assert shown["aborted"] == shown["records"] > 0
