"""A policy is built once, accepted as an object or by path, and shown without keys."""

import copy
import json
import pickle

import polars as pl
import pyarrow as pa
import pytest

import dptext_etl.polars  # noqa: F401
from dptext_etl import ColumnPolicy, Policy, catalog, privatize, run
from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.policy import resolve, resolve_column
from dptext_etl.runner import plan

CUSTEXT = {"name": "custext", "limit": 43, "epsilon": 2}
TEXTS, IDS = pa.array(["a good film", None]), pa.array(["a", "b"])
FACTS = {"dataset": "d", "release": "r", "source": "raw.parquet", "sink": "out", "id": "id", "unit": "record"}


def values(**changes):
    return {
        **FACTS,
        "key": "file:noise.key",
        "ledger": {"url": "l.db"},
        "column": [{"name": "review", "mechanism": CUSTEXT, "allow": ["cluster"]}],
        **changes,
    }


@pytest.fixture
def path(tmp_path):
    """A policy file of one text column, its key and its table."""
    (tmp_path / "noise.key").write_text("5b" * 31 + "c4")
    (tmp_path / "noise.key").chmod(0o600)
    pl.DataFrame({"id": IDS, "review": TEXTS}).write_parquet(tmp_path / "raw.parquet")
    lines = [f"{name} = {json.dumps(value)}" for name, value in FACTS.items()]
    lines += ['key = "file:noise.key"', 'ledger = { url = "l.db" }', "[[column]]", 'name = "review"']
    lines += ['mechanism = { name = "custext", limit = 43, epsilon = 2 }', 'allow = ["cluster"]']
    (tmp_path / "privacy.toml").write_text("\n".join(lines))
    return tmp_path / "privacy.toml"


def test_mechanisms_are_built_once_with_the_policy(monkeypatch):
    policy = Policy(**values())
    monkeypatch.setattr(catalog, "build", None)
    (column,) = policy.column_policies()
    assert isinstance(column.mechanism, CusText)
    assert column is policy.column_policies()[0] is policy.column_policy("review") is policy.column_policy()
    assert column.mechanism is policy.columns[0].mechanism
    unpublished = policy.model_copy(update={"publish": False, "release": "r2"})
    assert unpublished.column_policy().mechanism is column.mechanism
    assert (unpublished.column_policy().release, column.release) == ("r2", "r")


def test_a_policy_takes_mechanism_objects(path):
    made = CusText(epsilon=2.0, limit=43)
    policy = Policy(**values(column=[{"name": "review", "mechanism": made, "allow": ["cluster"]}]))
    assert policy.column_policy().mechanism is made
    again = Policy.model_validate_json(policy.model_dump_json(by_alias=True))
    assert again == policy
    assert again.column_policy().mechanism.cfg() == made.cfg() == Policy(**values()).column_policy().mechanism.cfg()


def test_a_mechanism_is_written_as_it_was_given():
    (column,) = json.loads(Policy(**values()).model_dump_json(by_alias=True))["column"]
    assert json.dumps(column["mechanism"]) == json.dumps(CUSTEXT)
    assert Policy(**values()).model_dump()["columns"][0]["mechanism"] == CUSTEXT
    copied = Policy(**values()).model_copy(update={"publish": False})
    assert json.dumps(copied.model_dump()["columns"][0]["mechanism"]) == json.dumps(CUSTEXT)


def test_a_used_policy_is_copied_and_pickled_whole(path):
    policy = Policy.load(path)
    released = privatize(TEXTS, IDS, policy)
    for again in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy), policy.model_copy(deep=True)):
        assert again == policy
        assert privatize(TEXTS, IDS, again).equals(released)


@pytest.mark.parametrize(("kind", "said"), [(Policy, "policy"), (ColumnPolicy, "column policy")])
def test_both_policies_refuse_with_the_same_error_and_sentence(kind, said):
    for make in (kind, kind.model_validate, lambda entries: kind.model_construct(**entries)):
        with pytest.raises(PolicyError) as caught:
            make(colums="red") if make is kind else make({"colums": "red"})
        assert caught.value.message.startswith(f"{said}: dataset: is missing; ")
        assert caught.value.message.endswith("colums: there is no such entry")
        assert caught.value.hint.startswith("did you mean ")
        assert caught.value.__context__ is None


def test_a_policy_is_given_as_an_object_or_by_path(path):
    policy = Policy.load(path)
    column = policy.column_policy()
    for given in (policy, path, str(path)):
        assert resolve(given) == policy
        assert resolve_column(given) == resolve_column(given, "review") == column
    assert resolve_column(column) is column
    for wrong in (column, None, {"dataset": "d"}, 3):
        with pytest.raises(PolicyError, match=f"path of a policy file is needed here, got {type(wrong).__name__}"):
            resolve(wrong)
    with pytest.raises(PolicyError, match="no text column 'note'; text columns: review"):
        resolve_column(path, "note")
    two = [{**values()["column"][0], "name": name} for name in ("review", "note")]
    with pytest.raises(PolicyError, match="several text columns; text columns: review, note"):
        privatize(TEXTS, IDS, Policy(**values(column=two)))


def test_columns_and_expressions_take_each_form(path):
    policy = Policy.load(path)
    frame = pl.DataFrame({"id": IDS, "review": TEXTS, "note": TEXTS})
    wanted = privatize(TEXTS, IDS, policy.column_policy())
    for given in (policy, path, str(path), policy.column_policy()):
        assert privatize(TEXTS, IDS, given).equals(wanted)
        expression = pl.col("review").dptext.privatize(given, id="id")
        assert frame.select(expression)["review"].to_list() == wanted.to_pylist()
        whole = frame.lazy().dptext.privatize(given, id="id").collect()
        assert whole.equals(frame.with_columns(expression))
    with pytest.raises(PolicyError, match="no text column 'note'"):
        pl.col("note").dptext.privatize(path, id="id")
    two = [{**values()["column"][0], "name": name} for name in ("review", "note")]
    both = Policy(**values(column=two, key=policy.key))
    released = frame.dptext.privatize(both, id="id")
    assert released["review"].to_list() == wanted.to_pylist() != released["note"].to_list()


def test_runs_take_a_path(path):
    assert plan(str(path)) == plan(Policy.load(path))
    summary = run(path)
    assert summary.rows["released"] == 2
    assert not run(Policy.load(path)).changed
    from dptext_etl_eval.auditing.audit import audit

    assert [item.column for item in audit(path, draws=1_000)] == ["review"]
    with pytest.raises(PolicyError, match="got ColumnPolicy"):
        run(Policy.load(path).column_policy())


def test_a_policy_shows_columns_and_no_key():
    values = {
        "dataset": "a <b> & c",
        "release": "r",
        "source": "raw.parquet",
        "sink": "published",
        "id": "id",
        "unit": "record",
        "key": "env:THE_NOISE_SECRET",
        "ledger": {"url": "env:THE_LEDGER_SECRET"},
        "cap": {"measure": "pure", "epsilon": 9.0, "period": "2026"},
        "column": [{"name": "review", "mechanism": {"name": "custext", "epsilon": 2.0}, "allow": ["cluster"]}],
    }
    policy = Policy.parse(values)
    assert "shard_rows" not in repr(policy)
    shown = policy._repr_html_() + policy.column_policies()[0]._repr_html_()
    for said in (
        "a &lt;b&gt; &amp; c",
        "review",
        "its parameter epsilon",
        "cluster, length, nullness",
        "measure pure, epsilon 9.0",
    ):
        assert said in shown
    assert "SECRET" not in shown
    alone = policy.column_policies()[0]
    assert repr(alone).startswith("ColumnPolicy(dataset=")
    assert "key=" not in repr(alone)
    assert isinstance(alone, ColumnPolicy)
