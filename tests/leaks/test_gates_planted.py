"""Planted bugs, one by one: each is stopped by a named gate; a correct run passes all of them."""

import base64
from urllib.parse import quote

import polars as pl
import pytest

from dptext_etl.checks import CANARY, evaluate, require
from dptext_etl.checks.gate import Edge, declared_lineage
from dptext_etl.errors import GateError

GATES = [
    "raw_column_absent",
    "canary_text_absent",
    "canary_rows_complete",
    "canary_words_replaced",
    "canary_rows_reproducible",
    "duplicates_within_chance",
    "words_in_output_set",
    "rows_ledgered",
    "one_text_per_record",
]


def failed(verdicts):
    return {name for name, verdict in verdicts.items() if not verdict.passed}


def test_a_correct_run_passes_every_gate(bench, tmp_path):
    verdicts = bench.judge(lambda part: part, tmp_path)
    assert list(verdicts) == GATES
    assert not failed(verdicts)
    require(verdicts.values())
    assert verdicts["canary_words_replaced"].counts["words"] > 400
    assert all(verdict.catches and verdict.message for verdict in verdicts.values())


def test_everything_passes_through(bench, tmp_path):
    def bug(part):
        return part.with_columns(bench.raw_texts(part, "review").alias("review"))

    verdicts = bench.judge(bug, tmp_path)
    assert failed(verdicts) == {
        "canary_text_absent",
        "canary_words_replaced",
        "duplicates_within_chance",
        "words_in_output_set",
        "rows_ledgered",
    }
    assert (
        verdicts["canary_words_replaced"].counts["survived"]
        > verdicts["canary_words_replaced"].counts["allowed review"]
    )
    with pytest.raises(GateError, match="5 of 9 gates failed") as caught:
        require(verdicts.values())
    assert caught.value.exit_code == 4


def test_unknown_words_pass_through(bench, tmp_path):
    """The peers' bug: a word that is not in the vocabulary is released as it is."""

    def bug(part):
        raw = bench.raw_texts(part, "review")
        foreign = raw.str.extract(r"([A-Za-z]{20})", 1)
        drawn = part["review"].str.replace(r"^\S+", "")
        return part.with_columns(
            pl.when(foreign.is_not_null()).then(foreign + drawn).otherwise("review").alias("review")
        )

    assert failed(bench.judge(bug, tmp_path)) >= {"canary_text_absent", "words_in_output_set"}


def test_known_words_pass_through(bench, tmp_path):
    """All words known: only counts of canary words that survive or agree, and the ledger, can tell."""

    def bug(part):
        raw = bench.raw_texts(part, "review")
        known = part[CANARY] & ~raw.str.contains(r"[A-Za-z]{20}")
        return part.with_columns(pl.when(known).then(raw).otherwise("review").alias("review"))

    verdicts = bench.judge(bug, tmp_path)
    assert failed(verdicts) == {"canary_words_replaced", "duplicates_within_chance", "rows_ledgered"}


def test_known_words_pass_through_in_one_shard(bench, tmp_path):
    shard = bench.run.canaries[1]

    def bug(part):
        here = part[CANARY] & part["id"].is_in(shard.ids("in_vocabulary").implode())
        return part.with_columns(
            pl.when(here).then(bench.raw_texts(part, "review")).otherwise("review").alias("review")
        )

    assert "canary_words_replaced" in failed(bench.judge(bug, tmp_path))


ENCODINGS = {
    "plain": lambda text: text,
    "upper": str.upper,
    "reversed": lambda text: text[::-1],
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 shifted": lambda text: base64.b64encode(b"x" + text.encode()).decode(),
    "base64 shifted twice": lambda text: base64.urlsafe_b64encode(b"xy" + text.encode()).decode(),
    "url": quote,
    "url, every byte": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "hexadecimal": lambda text: text.encode().hex(),
    "concatenated": lambda text: f"id=7;{text.replace(' ', '')};",
    "utf-16 bytes": lambda text: text.encode("utf-16-le").decode("latin-1"),
    "json": lambda text: f'{{"a": ["{text}"]}}',
}


@pytest.mark.parametrize("write", ENCODINGS.values(), ids=ENCODINGS)
def test_raw_text_in_a_column_that_looks_kept(bench, tmp_path, write):
    def bug(part):
        return part.with_columns(bench.raw_texts(part, "review").map_elements(write, pl.String).alias("stars"))

    assert failed(bench.judge(bug, tmp_path)) == {"canary_text_absent", "canary_rows_complete"}


HIDING_PLACES = {
    "a list": lambda raw: raw.str.split(" "),
    "a struct": lambda raw: raw.to_frame("inner").to_struct("outer"),
    "a list of structs of binaries": lambda raw: (
        raw.cast(pl.Binary).to_frame("b").to_struct("s").reshape((-1, 1)).arr.to_list()
    ),
    "a category": lambda raw: raw.cast(pl.Categorical),
    "bytes": lambda raw: raw.cast(pl.Binary),
}


@pytest.mark.parametrize("hide", HIDING_PLACES.values(), ids=HIDING_PLACES)
def test_raw_text_in_other_types(bench, tmp_path, hide):
    def bug(part):
        return part.with_columns(hide(bench.raw_texts(part, "note")).alias("stars"))

    assert "canary_text_absent" in failed(bench.judge(bug, tmp_path))


def test_raw_text_split_over_two_columns(bench, tmp_path):
    def bug(part):
        raw = bench.raw_texts(part, "review")
        half = 10  # in the middle of the first canary word
        return part.select(
            "id", raw.str.head(half).alias("stars"), raw.str.slice(half, half).alias("rest"), "review", "note", CANARY
        )

    verdicts = bench.judge(bug, tmp_path)
    assert verdicts["canary_text_absent"].counts["hits"] > 0
    assert "raw_column_absent" in failed(verdicts)


def test_a_renamed_raw_column(bench, tmp_path):
    def bug(part):
        return part.with_columns(bench.raw_texts(part, "review").alias("comment"))

    verdicts = bench.judge(bug, tmp_path)
    assert failed(verdicts) == {"raw_column_absent", "canary_text_absent"}
    assert "comment" not in verdicts["raw_column_absent"].message  # a pivot makes names of texts


def test_raw_text_in_column_names(bench, tmp_path):
    token = min(bench.run.canaries[0].tokens)
    verdicts = bench.judge(lambda part: part.with_columns(pl.lit(1).alias(f"has {token}")), tmp_path)
    assert failed(verdicts) == {"raw_column_absent", "canary_text_absent"}


def test_a_kept_column_computed_from_the_text(bench, tmp_path):
    def bug(part):
        return part.with_columns(bench.raw_texts(part, "review").str.len_chars().cast(pl.Int64).alias("stars"))

    assert failed(bench.judge(bug, tmp_path)) == {"canary_rows_complete"}


def test_texts_swapped_between_rows(bench, tmp_path):
    def bug(part):
        return part.with_columns(
            # the first row gets a canary's text, so that this text stands twice
            pl.when(pl.col(CANARY)).then("review").otherwise(pl.col("review").shift(1)).alias("review")
        )

    assert failed(bench.judge(bug, tmp_path)) == {"duplicates_within_chance", "rows_ledgered"}


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


@pytest.mark.parametrize("word", ["Good", "zzz", "good,", "good ", " good", "good  good", "<mask>", "good\u00a0the"])
def test_a_word_outside_the_output_set(bench, tmp_path, word):
    def bug(part):
        return part.with_columns(pl.when(pl.col("id") == 1001).then(pl.lit(word)).otherwise("note").alias("note"))

    verdicts = bench.judge(bug, tmp_path)
    assert verdicts["words_in_output_set"].counts["outside"] == 1
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
