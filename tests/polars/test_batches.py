"""The other road of the Polars door: a mechanism that is not a table goes through batches of the column seam."""

import subprocess
import sys
from typing import Self

import polars as pl
import pyarrow as pa
import pytest

import dptext_etl.polars
from dptext_etl import ColumnPolicy, _kernel, load, privatize
from dptext_etl.errors import InputError
from dptext_etl.guarantee import Guarantee, GuaranteeClass, Spend, micro
from dptext_etl.mechanism import Mechanism, Released


class KeyWords(Mechanism):
    """Releases two hex words of the record's key: a function of key, record and text, as every mechanism's output."""

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(GuaranteeClass.PURE_LDP, frozenset(), "any two texts", "record")

    def spend(self, positions: int) -> Spend:
        cost = micro(self.epsilon * positions)
        return Spend(eps_pure=cost, eps_tight=cost, eps_approx=cost, rho=cost, n_worst=positions)

    def positions(self, texts):
        return pa.array([0 if text is None else 2 for text in texts.to_pylist()], pa.uint32())

    def release(self, texts, keys):
        made = pa.array(_kernel.record_keys(keys.release, keys.ids, texts, keys.nonce)).to_pylist()
        words = [
            None if text is None else f"{key[:4].hex()} {key[4:8].hex()}"
            for text, key in zip(texts.to_pylist(), made, strict=True)
        ]
        return Released(pa.array(words, pa.large_string()), self.positions(texts))

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=1.0)


@pytest.fixture
def policy(tmp_path):
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    return ColumnPolicy(
        dataset="d", column=None, release="r", mechanism=KeyWords.example(), key=f"file:{tmp_path / 'noise.key'}"
    )


@pytest.fixture
def frame():
    return pl.DataFrame({"id": range(200), "text": [None if i % 9 == 0 else f"text {i % 7}" for i in range(200)]})


@pytest.fixture
def expected(policy, frame):
    named = policy.model_copy(update={"column": "text"})
    return privatize(frame["text"].to_arrow(), frame["id"].to_arrow(), named).to_pylist()


def test_eager_lazy_and_streaming_give_the_same(policy, frame, expected):
    expression = pl.col("text").dptext.privatize(policy, id="id")
    assert frame.with_columns(expression)["text"].to_list() == expected
    for engine in ("in-memory", "streaming"):
        assert frame.lazy().with_columns(expression).collect(engine=engine)["text"].to_list() == expected
    assert len(set(expected)) == len([text for text in expected if text]) + 1, "equal texts of two records differ"


def test_the_spend_stands_beside_the_text_and_a_plan_holds_no_secret(policy, frame, expected, tmp_path):
    out = frame.select(pl.col("text").dptext.privatize(policy, id="id", spend=True))
    assert out.schema["text"] == dptext_etl.polars.SPEND
    rows = out["text"].to_list()
    assert [row["text"] for row in rows] == expected
    assert {(row["text"] is None, row["positions"], row["epsilon"], row["delta"]) for row in rows} == {
        (True, 0, 0.0, 0.0),
        (False, 2, 2.0, 0.0),
    }
    plan = frame.lazy().with_columns(pl.col("text").dptext.privatize(policy, id="id"))
    secret = (tmp_path / "noise.key").read_text().strip()
    assert secret not in plan.explain()


@pytest.mark.parametrize("mechanism", ["custext", None], ids=["plugin", "batches"])
def test_an_id_that_stands_beside_several_texts_is_refused(policy, mechanism):
    """Each distinct text under an id is another draw: anyone who repeats ids has several releases of one record."""
    if mechanism:
        policy = policy.model_copy(update={"mechanism": load(mechanism).example(), "allow": {"cluster"}})
    release = pl.col("text").dptext.privatize(policy, id="id")
    again = pl.DataFrame({"id": ["r1", "r2", "r1"], "text": ["sentinel one", None, "sentinel one"]})
    assert again.select(release)["text"].to_list()[0] == again.select(release)["text"].to_list()[2]
    for other in ("sentinel two", None):
        changed = again.with_columns(text=pl.Series(["sentinel one", None, other]))
        with pytest.raises(Exception, match="belongs to several texts") as caught:
            changed.select(release)
        assert "sentinel" not in str(caught.value)


@pytest.mark.parametrize("mechanism", ["custext", None], ids=["plugin", "batches"])
def test_an_eager_frame_is_one_batch_however_long(policy, mechanism):
    if mechanism:
        policy = policy.model_copy(update={"mechanism": load(mechanism).example(), "allow": {"cluster"}})
    ids = [*range(1000), 0]
    frame = pl.DataFrame({"id": ids, "text": ["sentinel one"] * 1000 + ["sentinel two"]})
    named = policy.model_copy(update={"column": "text"})
    with pytest.raises(Exception, match="belongs to several texts") as caught:
        frame.select(pl.col("text").dptext.privatize(policy, id="id"))
    assert "sentinel" not in str(caught.value)
    with pytest.raises(InputError, match="belongs to several texts") as caught:
        privatize(pa.array(frame["text"].to_list()), pa.array(ids), named)
    assert "sentinel" not in str(caught.value)
    same = pa.array(["sentinel one"] * 1001, pa.string_view())
    released = privatize(pa.chunked_array([same]), pa.chunked_array([pa.array(ids)]), named).to_pylist()
    assert released[0] == released[-1]


@pytest.mark.parametrize("mechanism", ["custext", None], ids=["plugin", "batches"])
def test_when_around_a_release_is_refused_and_inside_of_it_is_not(policy, mechanism):
    """Polars sets the ids of rows that a branch does not give to null."""
    if mechanism:
        made = load(mechanism).example()
        policy = policy.model_copy(update={"mechanism": made, "allow": made.guarantee.disclosures})
    policy = policy.model_copy(update={"column": "text"})
    frame = pl.LazyFrame({"id": ["a", "b", "c"], "n": [1, 2, 3], "text": ["good", "bad", None]})
    many, text = pl.col("n") > 1, pl.col("text")
    for ids in ("id", "n", pl.struct("id")):
        released = text.dptext.privatize(policy, id=ids)
        for around in (
            pl.when(many).then(released),
            pl.when(many).then(released).otherwise(pl.lit("")),
            pl.when(many).then(pl.lit("")).otherwise(released),
        ):
            with pytest.raises(
                (pl.exceptions.ComputeError, InputError),
                match=r"null(.|\n)*select rows before the release",
            ):
                frame.select(around).collect()
        inside = pl.when(many).then(text).otherwise(pl.lit("")).dptext.privatize(policy, id=ids)
        assert frame.select(inside.alias("text")).collect().height == 3


def test_a_plan_over_a_model_needs_no_torch(tmp_path):
    """Planning, printing and sending an expression are done where no model could run."""
    pytest.importorskip("dptext_etl_models")
    program = """
import sys

sys.modules["torch"] = sys.modules["transformers"] = None
import polars as pl

import dptext_etl.polars
from dptext_etl import ColumnPolicy

mechanism = {"name": "dpmlm", "model": "FacebookAI/roberta-base", "epsilon": 10.0}
policy = ColumnPolicy(dataset="d", column="text", release="r", mechanism=mechanism, key="env:DPTEXT_SECRET")
lazy = pl.LazyFrame({"id": [1], "text": ["x"]}).with_columns(pl.col("text").dptext.privatize(policy, id=pl.col("id")))
assert lazy.collect_schema()["text"] == pl.String
assert "text" in lazy.explain()
lazy.serialize()
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
