"""Gates of whole public texts: correct runs pass; texts that no draw makes and draws that repeat are found."""

import numpy as np
import polars as pl
import pytest

from dptext_etl import Ledger, _kernel
from dptext_etl.checks import CANARY, Candidate, evaluate
from dptext_etl.checks.gates.table_gates import CorpusTexts
from dptext_etl.corpora import Corpus, WordEncoder
from dptext_etl.engines import stage
from dptext_etl.mechanisms.surrogate import Surrogate
from tests.policy_files import policy_in

WORDS = [f"{left}{right}" for left in "bdfgklmnprst" for right in ("ane", "ook", "ire", "oom", "ell")]
TEXTS = ["bane rook", "nothingknown", "", None, "The tire and the room", "nook nook"] * 25
GATES = {"texts_in_corpus", "repeats_within_chance", "canary_texts_replaced"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """2,000 texts, so that six planted rows tell something."""
    rng = np.random.default_rng(5)
    encoder = WordEncoder(WORDS, rng.integers(-99, 99, (len(WORDS), 8)).astype(np.int16))
    texts = [f"{a} {b}" for a in WORDS for b in WORDS][:2000]
    return Corpus.save(tmp_path_factory.mktemp("corpus"), texts, {"licence": "CC0", "provenance": "x"}, encoder=encoder)


@pytest.fixture(params=[1, 2])
def judged(request, corpus, tmp_path):
    """A staged run of one draw or two, and a function that judges changed parts."""
    _kernel.Secret.from_bytes(bytes(range(9, 41))).write(str(tmp_path / "noise.key"))
    pl.DataFrame({"id": [f"r{n}" for n in range(len(TEXTS))], "text": TEXTS}).write_parquet(tmp_path / "raw.parquet")
    mechanism = {"name": "surrogate", "epsilon": 1.0, "corpus": str(corpus.path), "parts": request.param}
    policy = policy_in(tmp_path, {"name": "text", "mechanism": mechanism}, dataset="words")
    run = stage(policy)
    raw = {row.id: row.texts["text"] for plan in run.canaries for row in plan.rows}
    whole = pl.concat([pl.read_parquet(part) for part in run.parts])

    def judge(change=lambda part: part):
        change(whole).write_parquet(tmp_path / "changed.parquet")
        with Ledger.open(policy.ledger.url) as ledger:
            verdicts = evaluate(Candidate(policy, (tmp_path / "changed.parquet",), run.canaries, ledger, run.refs))
        return {verdict.name: verdict for verdict in verdicts}

    judge.raw = raw
    return judge, policy.column_policies()[0].mechanism


def planted(part, cells):
    return pl.Series("text", [cells.get(row, text) for row, text in enumerate(part["text"])])


def failed(verdicts):
    return {name for name, verdict in verdicts.items() if not verdict.passed}


def test_a_correct_run_passes_and_what_no_draw_makes_or_records_share_is_found(judged):
    judge, mechanism = judged
    verdicts = judge()
    assert not failed(verdicts)
    assert verdicts.keys() >= GATES
    rows = len(TEXTS) + (8 if mechanism.parts == 1 else 2)
    assert verdicts["texts_in_corpus"].counts["texts"] == rows
    assert verdicts["repeats_within_chance"].counts["draws"] == rows * mechanism.most_positions
    assert "suspicious in" not in verdicts["repeats_within_chance"].message
    public = mechanism.opened.texts
    fair = " ".join(public[: mechanism.most_positions])
    for text in ("the tire", f"{fair} {public[4]}", f"{fair} ", fair.upper(), fair.replace(" ", "  ", 1), ""):
        found = judge(lambda part, text=text: part.with_columns(text=planted(part, {3: text})))
        assert found["texts_in_corpus"].counts["outside"] == 1, text
        assert text not in found["texts_in_corpus"].message or not text
    found = judge(lambda part: part.with_columns(text=pl.lit(fair)))
    assert found["texts_in_corpus"].passed
    assert not found["repeats_within_chance"].passed
    through = pl.when(CANARY).then(pl.col("id").replace_strict(judge.raw, default=None)).otherwise("text")
    found = judge(lambda part: part.with_columns(text=through))["canary_texts_replaced"]
    if mechanism.parts > 1:
        assert (found.counts["texts"], found.passed) == (0, True)
        return
    assert (found.counts["survived"], found.counts["equal"], found.passed) == (6, 3, False)
    assert not any(text in found.message for text in judge.raw.values())
    one = judge(lambda part: part.with_columns(text=pl.lit(public[0])))["canary_texts_replaced"]
    assert (one.counts["equal"], one.passed) == (3, False)


def test_texts_read_in_two_ways_and_cells_that_are_no_texts_do_not_count(tmp_path, monkeypatch):
    texts = ("a", "a b", "b", "b a", "c")
    mechanism = Surrogate(epsilon=1.0, corpus="example", parts=2)
    monkeypatch.setitem(mechanism.opened.__dict__, "texts", texts)
    drawn, outside = CorpusTexts(mechanism).find(pl.Series(["a b a", "a b c", "a b", "c", "c c c", None, "c c"]))
    assert (outside, drawn) == (2, {1: 1, 4: 3, 0: 1, 2: 1})
    shown, hidden = (
        CorpusTexts(Surrogate(epsilon=1.0, corpus="example", null_as_empty=null)) for null in (False, True)
    )
    assert shown.find(pl.Series([1, 2, None]))[1] == 2
    cells = pl.Series([None, "Who won the game last night"])
    assert (shown.find(cells)[1], hidden.find(cells)[1]) == (0, 1)
