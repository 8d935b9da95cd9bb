"""Planted bugs, one by one: each is stopped by a named gate; a correct run passes; gates know their limits."""

import hashlib

import polars as pl
import pytest

from dptext_etl import Ledger, _kernel
from dptext_etl.checks import CANARY, CanaryPlan, Candidate, evaluate, require
from dptext_etl.checks.canaries import CanaryRow
from dptext_etl.checks.gates import canary_gates
from dptext_etl.checks.gates.canary_gates import CanaryTextAbsent
from dptext_etl.engines import stage
from dptext_etl.errors import GateError
from tests.policy_files import custext_column, policy_in

GATES = [
    "raw_column_absent", "canary_text_absent", "canary_rows_complete", "canary_words_replaced",
    "canary_rows_reproducible", "duplicates_within_chance", "words_in_output_set", "rows_ledgered",
    "one_text_per_record",
]  # fmt: skip


def failed(verdicts):
    return {name for name, verdict in verdicts.items() if not verdict.passed}


def test_a_correct_run_passes_every_gate(bench, tmp_path):
    verdicts = bench.judge(lambda part: part, tmp_path)
    assert list(verdicts) == GATES
    assert not failed(verdicts)
    require(verdicts.values())
    assert verdicts["canary_words_replaced"].counts["words"] > 400
    assert all(verdict.catches and verdict.message for verdict in verdicts.values())


def test_raw_text_in_column_names(bench, tmp_path):
    token = min(bench.run.canaries[0].tokens)
    verdicts = bench.judge(lambda part: part.with_columns(pl.lit(1).alias(f"has {token}")), tmp_path)
    assert failed(verdicts) == {"raw_column_absent", "canary_text_absent"}


def test_one_byte_changed_after_the_commit(bench, tmp_path):
    changed = []

    def bug(part):
        places = part.with_row_index().filter(pl.col("note").str.contains(" ") & ~pl.col(CANARY))["index"].head(1)
        word, other = part["note"][places[0]].split(" ")[:2]
        changed.append(word != other)
        note = (
            pl.when(pl.int_range(pl.len()) == places[0]).then(pl.col("note").str.replace(word, other)).otherwise("note")
        )
        return part.with_columns(note.alias("note"))

    verdicts = bench.judge(bug, tmp_path)
    assert verdicts["rows_ledgered"].counts["different"] == sum(changed) > 0
    assert failed(verdicts) == {"rows_ledgered"}


def test_a_row_without_a_commit(bench, tmp_path):
    def bug(part):
        return pl.concat([part, part.filter(~pl.col(CANARY)).head(1).with_columns(id=pl.lit(7, pl.Int64))])

    verdicts = bench.judge(bug, tmp_path)
    assert failed(verdicts) == {"rows_ledgered", "one_text_per_record"}
    assert verdicts["rows_ledgered"].counts["uncommitted"] == 2 * len(bench.run.parts)


def test_rows_without_ids(bench, tmp_path):
    def bug(part):
        return part.with_columns(pl.when(pl.col(CANARY) | (pl.col("id") > 1005)).then("id").alias("id"))

    verdicts = bench.judge(bug, tmp_path)
    assert failed(verdicts) == {"rows_ledgered"}
    assert verdicts["rows_ledgered"].counts["uncommitted"] == 2 * 6
    lost = bench.judge(lambda part: part.with_columns(pl.when(~pl.col(CANARY)).then("id").alias("id")), tmp_path)
    assert failed(lost) == {"canary_rows_complete", "rows_ledgered"}


def test_a_column_without_a_registered_release(bench, tmp_path):
    refs = {"note": bench.run.refs["note"]}
    assert failed(bench.judge(lambda part: part, tmp_path, refs=refs)) == {"rows_ledgered"}


OUTSIDE = ["Good", "zzz", "good,", "good ", " good", "good  good", "<mask>", "good\u00a0the"]


def test_words_outside_the_output_set(bench, tmp_path):
    def bug(part):
        written = pl.col("id").replace_strict(range(1001, 1009), OUTSIDE, default=None)
        return part.with_columns(pl.coalesce(written, "note").alias("note"))

    verdicts = bench.judge(bug, tmp_path)
    assert verdicts["words_in_output_set"].counts["outside"] == len(OUTSIDE)
    assert failed(verdicts) == {"words_in_output_set", "rows_ledgered"}


def test_missing_extra_and_mistyped_columns(bench, tmp_path):
    assert "raw_column_absent" in failed(bench.judge(lambda part: part.drop("stars"), tmp_path))
    assert "raw_column_absent" in failed(bench.judge(lambda part: part.drop("note"), tmp_path))
    assert failed(bench.judge(lambda part: part.with_columns(pl.lit(0).alias("x")), tmp_path)) == {"raw_column_absent"}
    verdicts = bench.judge(lambda part: part.with_columns(pl.col("note").cast(pl.Binary)), tmp_path)
    assert "raw_column_absent" in failed(verdicts)
    assert failed(bench.judge(lambda part: part.drop("id"), tmp_path)) == {"raw_column_absent"}
    assert failed(bench.judge(lambda part: part.drop(CANARY), tmp_path)) == {"raw_column_absent"}


def test_types_that_differ_between_parts(bench, tmp_path):
    kinds = iter([pl.Int64, pl.Int32, pl.Int64])
    verdicts = bench.judge(lambda part: part.with_columns(pl.col("stars").cast(next(kinds))), tmp_path)
    assert failed(verdicts) == {"raw_column_absent"}


def test_canaries_that_were_lost_or_would_be_published(bench, tmp_path):
    assert failed(bench.judge(lambda part: part.filter(~pl.col(CANARY)), tmp_path)) == {"canary_rows_complete"}
    unmarked = bench.judge(lambda part: part.with_columns(pl.lit(value=False).alias(CANARY)), tmp_path)
    assert failed(unmarked) == {"canary_rows_complete", "rows_ledgered"}
    doubled = bench.judge(lambda part: pl.concat([part, part.filter(pl.col(CANARY))]), tmp_path)
    assert "canary_rows_complete" in failed(doubled)
    marked = bench.judge(
        lambda part: part.with_columns((pl.col(CANARY) | (pl.col("id") == 1001)).alias(CANARY)), tmp_path
    )
    assert failed(marked) == {"canary_rows_complete", "rows_ledgered"}
    unplanned = bench.judge(lambda part: part, tmp_path, canaries=())
    assert failed(unplanned) == {"canary_rows_complete", "canary_text_absent"}


def test_raw_text_in_other_artefacts(bench, tmp_path):
    token = next(row for row in bench.run.canaries[0].rows if row.kind == "out_of_vocabulary").words["note"][0]
    (tmp_path / "run.log").write_text(f"could not read cell {token.upper()!r}\n")
    verdicts = bench.judge(lambda part: part, tmp_path, texts=(tmp_path / "run.log",))
    assert failed(verdicts) == {"canary_text_absent"}
    (tmp_path / "run.log").write_text("250 rows\n")
    assert not failed(bench.judge(lambda part: part, tmp_path, texts=(tmp_path / "run.log",)))


def test_a_part_that_cannot_be_read_stops_everything(bench, tmp_path):
    (tmp_path / "part.parquet").write_bytes(b"PAR1" + b"\0" * 100)
    with pytest.raises(GateError, match="evaluating the gates failed") as caught:
        evaluate(bench.candidate((tmp_path / "part.parquet",)))
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_no_part_at_all_fails(bench, tmp_path):
    verdicts = {verdict.name: verdict for verdict in evaluate(bench.candidate(()))}
    assert failed(verdicts) >= {"raw_column_absent", "canary_rows_complete"}
    with pytest.raises(GateError, match="no gate was evaluated"):
        require([])


def test_no_verdict_error_or_repr_holds_a_text_or_an_id(bench, tmp_path):
    """Raw text everywhere, including where errors would quote it."""

    def bug(part):
        raw = bench.raw_texts(part, "review")
        return part.with_columns(raw.alias("review"), raw.alias("stars"), raw.alias(f"x{bench.sentinel}"))

    verdicts = bench.judge(bug, tmp_path)
    with pytest.raises(GateError) as caught:
        require(verdicts.values())
    said = [str(caught.value), repr(caught.value), repr(verdicts), *(str(item.as_dict()) for item in verdicts.values())]
    texts = {word for text in bench.raw["review"].drop_nulls() for word in text.lower().split() if len(word) > 5}
    assert not [item for item in said for text in texts | {bench.sentinel.lower()} if text in item.lower()]
    assert not [item for item in said if "1001" in item]
    assert not [text for text in texts if text in repr(bench.run.canaries)]


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
