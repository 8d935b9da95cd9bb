"""The gates under every word mechanism, variant, length and mode: correct runs pass, words that pass through do not."""

import polars as pl
import pytest

from dptext_etl import Ledger, _kernel
from dptext_etl.checks import CANARY, Candidate, evaluate
from dptext_etl.engines import stage
from dptext_etl.guarantee import GuaranteeClass
from tests.policy_files import policy_in

TEXTS = ["Good word, the good!", "nonesuchword 42 the", "people like the other time", "", "we say no"] * 8


@pytest.fixture
def staged(word_mechanism, tmp_path):
    """A staged run of the mechanism, its raw canary texts by id, and a function that judges changed parts.

    At an epsilon at which copies are rare.
    """
    word_mechanism = word_mechanism.model_copy(update={"epsilon": min(word_mechanism.epsilon, 10.0)})
    _kernel.Secret.from_bytes(bytes(range(9, 41))).write(str(tmp_path / "noise.key"))
    pl.DataFrame({"id": [f"r{n}" for n in range(len(TEXTS))], "text": TEXTS}).write_parquet(tmp_path / "raw.parquet")
    shown = word_mechanism.guarantee.guarantee_class is GuaranteeClass.UMLDP
    column = {
        "name": "text",
        "mechanism": {"name": word_mechanism.name, **word_mechanism.model_dump(exclude_unset=True)},
        "allow": sorted(word_mechanism.guarantee.disclosures),
        **({"accept_unbounded": ["UMLDP"]} if shown else {}),
    }
    policy = policy_in(tmp_path, column, dataset="words", publish=word_mechanism.mode == "strict")
    run = stage(policy)
    whole = pl.concat([pl.read_parquet(part) for part in run.parts])
    raw = {row.id: row.texts["text"] for plan in run.canaries for row in plan.rows}

    def judge(change=lambda part: part):
        change(whole).write_parquet(tmp_path / "changed.parquet")
        with Ledger.open(policy.ledger.url) as ledger:
            verdicts = evaluate(Candidate(policy, (tmp_path / "changed.parquet",), run.canaries, ledger, run.refs))
        return {verdict.name: verdict for verdict in verdicts}

    natives = {row.id for plan in run.canaries for row in plan.rows if row.kind == "in_vocabulary"}
    return whole, raw, natives, judge


def failed(verdicts):
    return {name for name, verdict in verdicts.items() if not verdict.passed}


def test_a_correct_run_passes_and_what_passes_through_or_is_shared_is_found(word_mechanism, staged):
    whole, raw, natives, judge = staged
    verdicts = judge()
    assert not failed(verdicts)
    assert len(natives) == 6
    native = verdicts["canary_words_replaced"]
    assert native.counts["words"] >= 6 * min(24, word_mechanism.n_max)
    assert "suspicious in" not in native.message

    def through(part):
        known = pl.col(CANARY) & pl.col("id").is_in(list(natives))
        original = pl.col("id").replace_strict(raw, default=None, return_dtype=pl.String)
        return part.with_columns(pl.when(known).then(original).otherwise("text").alias("text"))

    found = failed(judge(through))
    assert {"canary_words_replaced", "rows_ledgered"} <= found
    if word_mechanism.mode == "strict" and set(word_mechanism.input_words()) <= word_mechanism.output_words():
        assert "words_in_output_set" not in found  # nothing else could have seen it

    text = dict(whole.select("id", "text").iter_rows())
    first = {raw[name]: text[name] for name in sorted(natives)}
    assert len(first) == 3

    def shared(part):
        """One seed for all rows, or samples kept for equal texts: equal texts have equal releases."""
        told = pl.col("id").replace_strict({name: first[raw[name]] for name in natives}, default=None)
        return part.with_columns(pl.coalesce(told, "text").alias("text"))

    shown = judge(shared)
    if "suspicious in" in shown["duplicates_within_chance"].message:
        assert word_mechanism.length != "disclose"  # and its texts are too short
    else:
        assert {"duplicates_within_chance", "rows_ledgered"} <= failed(shown)

    def everything(part):
        original = pl.col("id").replace_strict(raw, default=None, return_dtype=pl.String)
        return part.with_columns(pl.coalesce(original, "text").alias("text"))

    found = failed(judge(everything))
    assert {"canary_words_replaced", "rows_ledgered"} <= found
    if word_mechanism.mode == "strict":  # faithful modes keep the same words as the papers
        assert {"canary_text_absent", "words_in_output_set"} <= found

        def other(part):
            return part.with_columns(
                pl.when(pl.col("id") == "r0").then(pl.lit("<PAD>")).otherwise("text").alias("text")
            )

        assert failed(judge(other)) == {"words_in_output_set", "rows_ledgered"}
