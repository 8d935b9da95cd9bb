"""Released texts are rewritten after the commit and before the gates: at no cost, once, and never from a raw text."""

import json

import polars as pl
import pyarrow as pa
import pytest

import dptext_etl.polars  # noqa: F401
from dptext_etl import privatize, run
from dptext_etl.checks.canaries import policy_tokens
from dptext_etl.checks.published import check_published
from dptext_etl.engines import stage
from dptext_etl.errors import GateError, InputError, LedgerError, PolicyError
from dptext_etl.runner import Manifest, plan, scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.publish.publication import check, reports
from dptext_etl.runner.shard import computing
from dptext_etl_eval.personal_data import Span
from dptext_etl_eval.published import columns_of
from dptext_etl_eval.raw_reports import sealed, survivors
from tests.toy_mechanisms import again  # noqa: F401  (a fixture)

ROWS, CANARIES = 60, 16


def columns(job, **review):
    """The columns of the job; `review` is rewritten."""
    mechanism = {"name": "custext", "epsilon": 2.0, "k": 5, "vectors": job.vectors}
    both = [{"name": name, "mechanism": mechanism, "allow": ["cluster"]} for name in ("review", "note")]
    return [{**both[0], "postprocess": [{"name": "again"}], **review}, both[1]]


@pytest.fixture
def rewriting(make_job, reviews, again):  # noqa: F811
    job = make_job("rewriting", reviews(ROWS), shard_rows=40)
    job.values["column"] = columns(job)
    job.again = again
    return job


def published(job):
    return scan_published(str(job.folder / "published")).collect().sort("id")


def test_released_texts_are_rewritten_at_no_cost(rewriting, make_job, reviews, sentinel):
    plain = make_job("plain", reviews(ROWS), shard_rows=40)
    plain.run()
    summary = rewriting.run(column=columns(rewriting, keep_intermediate=True))
    assert summary.version == 1
    assert all(gate["passed"] for gate in summary.gates)
    table = published(rewriting)
    assert table.columns == ["id", "stars", "review", "review_intermediate", "note"]
    written = table["review"].str.split(" ").list.len() - table["review_intermediate"].str.split(" ").list.len()
    assert written.unique().to_list() == [1]
    got = rewriting.again.got
    assert len(got) == ROWS + CANARIES
    assert set(table["review_intermediate"]) <= set(got)
    assert not any(sentinel in text for text in got), "a rewriter gets released texts alone"
    assert rewriting.charged() == plain.charged()
    with rewriting.ledger() as ledger:
        assert ledger.verify().counts["rewritten"] == ROWS + CANARIES
        (shown, other) = ledger.reports.show()
        ((done,), said) = (shown["postprocess"], ledger.verify())
        assert said.ok, said.problems
    assert (done["rows"], done["spend"]) == (ROWS + CANARIES, 0)
    assert done["steps"][0]["training_provenance"] == "public"
    assert "postprocess" not in other
    policy = rewriting.policy(column=columns(rewriting, keep_intermediate=True))
    manifest = Manifest.read(Layout.of(policy, None))
    assert manifest.columns[0]["postprocess"] == done["steps"]
    assert all(verdict.passed for verdict in check_published(rewriting.folder / "published", policy))
    assert any("again rewrites the released texts, at no cost" in note for note in plan(policy).notes)


def test_a_second_run_serves_what_was_recorded(rewriting):
    rewriting.run()
    files = rewriting.files()
    rewriting.forget_that_nothing_changed()
    rewriting.again.got.clear()
    rewriting.again.probed.clear()
    assert rewriting.run().changed is False
    assert (rewriting.again.got, rewriting.again.probed, rewriting.files()) == ([], [], files)
    before = published(rewriting)
    assert rewriting.run(column=columns(rewriting, keep_intermediate=True)).version == 2
    assert published(rewriting)["review"].equals(before["review"])
    assert rewriting.again.got == [], "what is kept next to needs no other text"


@pytest.mark.parametrize(
    ("step", "times"), [("committed", 3), ("rewriting staged", 1), ("rewriting staged", 2), ("rewriting recorded", 1)]
)
def test_a_run_that_stops_goes_on_with_what_was_staged(rewriting, step, times):
    assert rewriting.stop(step, times)
    rewriting.forget_that_nothing_changed()
    assert rewriting.run().rows["released"] == ROWS
    assert len(rewriting.again.got) == ROWS + CANARIES, "no text is rewritten twice"
    with rewriting.ledger() as ledger:
        assert ledger.verify().counts["rewritten"] == ROWS + CANARIES
        assert ledger.verify().ok


def test_without_what_staging_kept_nothing_else_is_published(rewriting):
    rewriting.run()
    files = rewriting.files()
    rewriting.forget_that_nothing_changed()
    for kept in (rewriting.folder / "published.staging").rglob("kept-*.post"):
        kept.unlink()
    with pytest.raises(LedgerError, match="rewritten again, became others than were recorded"):
        rewriting.run()
    assert rewriting.files() == files


def test_another_rewriter_costs_nothing_and_gets_the_same_release(rewriting):
    rewriting.run()
    first = set(rewriting.again.got)
    charged = rewriting.charged()
    rewriting.again.got.clear()
    other = columns(rewriting, postprocess=[{"name": "again", "marks": "other"}, {"name": "again"}])
    summary = rewriting.run(column=other)
    assert (summary.version, summary.rows["new"]) == (2, 0)
    assert first <= set(rewriting.again.got)
    assert rewriting.charged() == charged
    with rewriting.ledger() as ledger:
        assert ledger.verify().ok
        assert [item["rows"] for item in ledger.reports.show()[0]["postprocess"]] == [ROWS + CANARIES] * 2
    sink = rewriting.folder / "published"
    assert all(verdict.passed for verdict in check_published(sink, rewriting.policy(column=other)))
    failed = [verdict.name for verdict in check_published(sink, rewriting.policy()) if not verdict.passed]
    assert failed == ["published_files", "rows_ledgered"]


def test_only_what_learnt_from_public_texts_is_free(rewriting):
    def refused(learnt, **entries):
        step = {"name": "again", "learnt": learnt}
        policy = rewriting.policy(column=columns(rewriting, postprocess=[step]), **entries)
        with pytest.raises(PolicyError) as caught:
            run(policy)
        return str(caught.value)

    assert "no one declares it" in refused(None)
    for unit in ({}, {"unit": "record", "subject": None}):
        assert "nothing is charged for revealing" in refused("disjoint-records", **unit)
    assert not (rewriting.folder / "ledger.db").exists(), "nothing was charged"


def test_expressions_without_a_ledger_refuse(rewriting):
    policy = rewriting.policy().column_policy("review")
    with pytest.raises(PolicyError, match=r"post-processing \(again\) needs a run"):
        privatize(pa.array(["a"]), pa.array(["r1"]), policy)
    with pytest.raises(PolicyError, match=r"post-processing \(again\) needs a run"):
        pl.DataFrame({"id": ["a"], "review": ["b"]}).dptext.privatize(policy, id="id")


def test_gates_judge_the_release_whatever_is_made_of_it(rewriting, monkeypatch):
    """A mechanism that lets raw texts through is found, though a rewriter hides them all."""
    real = computing.release
    rewriting.again.says = staticmethod(lambda text: "x")
    monkeypatch.setattr(computing, "release", lambda texts, *rest: real(texts, *rest)._replace(text=texts))
    with pytest.raises(GateError) as caught:
        rewriting.run()
    assert "canary_text_absent" in str(caught.value)
    assert not list((rewriting.folder / "published.staging").rglob("*.post"))


def test_gates_judge_what_is_made_of_it(rewriting):
    """A rewriter that writes the word of a canary row is found; no chance lets it."""
    policy = rewriting.policy()
    word = policy_tokens(policy, policy.column_policies()[0].secret)["review"][0]
    rewriting.again.says = staticmethod(lambda text: f"{text} {word}")
    with pytest.raises(GateError, match="canary_text_absent"):
        rewriting.run()
    assert not (rewriting.folder / "published.manifest.json").exists()


def test_what_is_staged_cannot_be_exchanged(rewriting):
    staged = stage(rewriting.policy())
    first = staged.parts[0].with_suffix(".post")
    assert set(json.loads(first.with_suffix(".json").read_text())["post"]) == {"sha256", "chains", "failed", "copies"}
    table = pl.read_parquet(first)
    table.with_columns(review=pl.col("review").reverse()).write_parquet(first)
    with pytest.raises(InputError, match="has changed since it was staged"):
        check(staged)


def test_forgotten_records_leave_what_was_made_of_them(rewriting, save):
    rewriting.run()
    texts = dict(published(rewriting).select("id", "review").iter_rows())
    raw = pl.read_parquet(rewriting.folder / "raw.parquet")
    save(raw.filter(pl.col("id") != "r00000"), rewriting.folder / "raw.parquet")
    forget(rewriting.policy(), records=["r00000"])
    staging = rewriting.folder / "published.staging"
    kept = [pl.read_parquet(path) for path in staging.rglob("kept-*.post")]
    assert kept
    assert not any("r00000" in frame["id"] for frame in kept)
    rewriting.again.got.clear()
    rewriting.forget_that_nothing_changed()
    rewriting.run()
    assert rewriting.again.got == []
    now = dict(published(rewriting).select("id", "review").iter_rows())
    assert now == {name: text for name, text in texts.items() if name != "r00000"}


def test_reports_say_what_readers_see(rewriting):
    """A rewriter that brings an original back is found in the published text, and not in the release under it."""
    raw = pl.read_parquet(rewriting.folder / "raw.parquet")
    original = raw.sort("id")["review"][7].lower()
    rewriting.again.says = staticmethod(lambda text: original)
    policy = rewriting.policy(column=columns(rewriting, keep_intermediate=True))
    staged = stage(policy)
    assert list(survivors(staged)) == ["review", "note", "review_intermediate"]
    found = survivors(staged, lambda text: [Span("WORD", word) for word in text.split()[:1]])
    assert (found["review"].survived, found["review_intermediate"].survived) == ({"WORD": ROWS}, {})
    shared = sealed(staged)
    assert (shared["review"]["texts"], shared["review_intermediate"]["texts"]) == (ROWS, 0)
    said = {item["name"]: item for item in reports(staged) if "'review'" in item["message"]}
    assert said["copies_within_chance"]["counts"]["copies"] == 0, "what the mechanism released"
    assert said["copies_published"]["counts"] == {"rows": ROWS, "copies": 1}
    assert "report only" in said["copies_published"]["message"]
    assert all(verdict.passed for verdict in check(staged)), "a report decides nothing"


def test_texts_that_a_rewriter_failed_on_are_counted(rewriting, monkeypatch):
    real = type(rewriting.policy().columns[0].postprocess[0]).rewrite

    def failing(step, texts, keys, place=0):
        made = real(step, texts, keys, place)
        return made._replace(failed=pa.array([True] * 3 + [False] * (len(texts) - 3)))

    monkeypatch.setattr(rewriting.again, "rewrite", failing)
    summary = rewriting.run()
    (failed,) = [item for item in summary.reports if item["name"] == "rewriting_failures"]
    assert failed["counts"] == {"texts": 6}, "three of each shard"


def test_a_report_takes_the_mechanisms_law_for_what_the_mechanism_released(rewriting):
    policy = rewriting.policy(column=columns(rewriting, keep_intermediate=True))
    run(policy)
    found = {name: pairs for name, pairs, _ in columns_of(policy, rewriting.folder / "report")}
    assert {name: pairs.mechanism is not None for name, pairs in found.items()} == {
        "review": False,
        "review_intermediate": True,
        "note": True,
    }
    published_texts = dict(published(rewriting).select("review", "review_intermediate").iter_rows())
    assert set(found["review"].released) == set(published_texts)
    assert set(found["review_intermediate"].released) == set(published_texts.values())
    assert found["review"].raw == found["review_intermediate"].raw
