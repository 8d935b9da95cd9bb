"""Where gates have no power they say so; faithful runs, which are never published, may keep more words."""

import hashlib

import polars as pl
import pytest

from dptext_etl import Ledger, _kernel
from dptext_etl.checks import CANARY, CanaryPlan, Candidate, evaluate
from dptext_etl.checks.canaries import CanaryRow
from dptext_etl.checks.gates import canary_gates
from dptext_etl.checks.gates.canary_gates import CanaryTextAbsent
from dptext_etl.engines import stage
from tests.policy_files import custext_column, policy_in


@pytest.fixture
def staged(tmp_path, small_vectors):
    """A function that stages a small table under a mechanism and evaluates its gates, after a bug if one is given."""
    _kernel.Secret.from_bytes(hashlib.sha256(b"limits").digest()).write(str(tmp_path / "noise.key"))
    texts = ["Good word, the good!", "unknownword 42 the", "wordab wordac", ""] * 10
    pl.DataFrame({"id": [f"r{n}" for n in range(40)], "text": texts}).write_parquet(tmp_path / "raw.parquet")

    def judge(mechanism, bug=None, **changes):
        name = f"run-{len(list(tmp_path.iterdir()))}"
        column = custext_column(small_vectors, **mechanism)
        column["allow"] = ["cluster", "punct", "numbers", "oov", "case", "stopwords"]
        places = {"sink": str(tmp_path / name), "staging": str(tmp_path / f"{name}.staging")}
        policy = policy_in(tmp_path, column, dataset=name, **places, **changes)
        run = stage(policy)
        parts = run.parts
        if bug is not None:
            raw = {row.id: row.texts["text"] for plan in run.canaries for row in plan.rows}
            parts = (tmp_path / f"{name}.parquet",)
            bug(pl.concat([pl.read_parquet(part) for part in run.parts]), raw).write_parquet(parts[0])
        with Ledger.open(policy.ledger.url) as ledger:
            verdicts = evaluate(Candidate(policy, parts, run.canaries, ledger, run.refs))
        return {verdict.name: verdict for verdict in verdicts}

    return judge


def failed(verdicts):
    return {name for name, verdict in verdicts.items() if not verdict.passed}


@pytest.mark.parametrize("epsilon", [0.1, 2.0, 10.0, 30.0, 200.0])
def test_correct_runs_pass_at_any_epsilon(staged, epsilon):
    assert not failed(staged({"epsilon": epsilon}))


def test_at_a_large_epsilon_no_count_is_suspicious_and_the_verdict_says_so(staged):
    native = staged({"epsilon": 2000.0})["canary_words_replaced"]
    assert native.passed
    assert "no count would be suspicious in 'text'" in native.message
    assert native.counts["survived"] > 0.9 * native.counts["words"]
    assert "suspicious in" not in staged({"epsilon": 2.0})["canary_words_replaced"].message


def test_stopwords_that_are_kept_raise_no_alarm(staged):
    assert not failed(staged({"epsilon": 2.0, "variant": "plus"}))


def test_a_text_longer_than_the_mechanism_takes_is_cut_and_raises_no_alarm(staged):
    verdicts = staged({"epsilon": 2.0, "n_max": 5})
    assert not failed(verdicts)
    assert verdicts["canary_words_replaced"].counts["words"] == 6 * 5


def test_words_added_or_lost_in_canary_rows_are_a_defect(staged):
    def bug(part, raw):
        longer = pl.when(pl.col(CANARY)).then(pl.col("text") + " good").otherwise("text")
        return part.with_columns(longer.alias("text"))

    verdicts = staged({"epsilon": 2.0}, bug)
    assert verdicts["canary_words_replaced"].counts["misaligned"] == 6
    assert failed(verdicts) == {"canary_words_replaced", "rows_ledgered"}


def test_a_faithful_run_keeps_unknown_words_in_its_own_column_only(staged):
    verdicts = staged({"epsilon": 2.0, "mode": "faithful"}, publish=False)
    assert not failed(verdicts)
    assert "not applicable, as no words are fixed: 'text'" in verdicts["words_in_output_set"].message
    assert "not searched for the unknown words that 1 column keeps unchanged" in verdicts["canary_text_absent"].message


def test_known_words_that_pass_through_a_faithful_run_are_found(staged):
    def bug(part, raw):
        through = pl.col("id").replace_strict(raw, default=None, return_dtype=pl.String)
        return part.with_columns(pl.coalesce(through, "text").alias("text"))

    verdicts = staged({"epsilon": 2.0, "mode": "faithful"}, bug, publish=False)
    assert failed(verdicts) == {"canary_words_replaced", "duplicates_within_chance", "rows_ledgered"}


@pytest.mark.parametrize(("mark", "hits"), [(True, 0), (False, 1), (None, 1)])
def test_where_chance_may_spell_a_word_marked_rows_alone_are_not_searched(
    small_vectors, tmp_path, monkeypatch, mark, hits
):
    monkeypatch.setattr(canary_gates, "chance_of_foreign_words", lambda _: 1.0)
    policy = policy_in(tmp_path, custext_column(small_vectors))
    word = "abcdefghijklmnopqrst"
    row = CanaryRow("a", "out_of_vocabulary", {"text": word}, {"text": (word,)})
    plan = CanaryPlan(0, (row,), frozenset({word}), pl.String())
    gate = CanaryTextAbsent(Candidate(policy, (), (plan,), None, {}))
    marks = pl.Series(CANARY, [mark], dtype=pl.Boolean)
    gate.rows(pl.DataFrame([pl.Series("id", ["a"]), pl.Series("text", [f"some {word}"]), marks]))
    assert gate.verdict().counts["hits"] == hits
