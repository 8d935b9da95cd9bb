"""Planted bugs, one by one: each is stopped by a named gate; a correct run passes all of them."""

import polars as pl
import pytest

from dptext_etl.checks import CANARY, evaluate, require
from dptext_etl.checks.gate import Edge, declared_lineage
from dptext_etl.errors import GateError

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


def test_lineage_that_differs_from_the_policy(bench, tmp_path):
    declared = declared_lineage(bench.policy)
    aliased = (*declared[:-1], Edge("review", "note", "kept"))
    assert failed(bench.judge(lambda part: part, tmp_path, lineage=aliased)) == {"raw_column_absent"}
    assert not failed(bench.judge(lambda part: part, tmp_path, lineage=declared))


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
