"""`privatize(policy, select=True)` returns the rows and columns that a run of the policy publishes."""

import warnings

import polars as pl
import pytest

from dptext_etl import Policy, _kernel
from dptext_etl.errors import GateError, InputError, PolicyError
from dptext_etl.polars import guard, released, run_frame
from dptext_etl.policy.plan_rules import OtherTextWarning

col = pl.col
RAW = pl.DataFrame(
    {
        "notes": ["a note that no policy names"] * 60, "id": [f"r{n:02}" for n in range(60)],
        "user": [None if n == 7 else f"u{n}" for n in range(60)], "stars": [n % 5 for n in range(60)],
        "review": [None if n % 9 == 0 else "a good film with a bad ending" for n in range(60)],
    }
)  # fmt: skip


@pytest.fixture
def policy(tmp_path):
    _kernel.Secret().write(str(tmp_path / "noise.key"))

    def make(**entries):
        column = {
            "name": entries.pop("text", "review"),
            "mechanism": {"name": "custext", "epsilon": 2.0},
            "allow": ["cluster"],
        }
        facts = {
            "dataset": "d", "release": "r", "source": "raw.parquet", "sink": str(tmp_path / "published"), "id": "id",
            "subject": "user", "keep": ["stars"], "on_null_subject": "quarantine", "staging": str(tmp_path / "inside"),
            "key": f"file:{tmp_path / 'noise.key'}",
            "ledger": {"url": f"sqlite:///{tmp_path / 'ledger.db'}"}, "keep_unique": "accepted",
        }  # fmt: skip
        return Policy.parse({**facts, "column": [column], **entries})

    return make


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"ids": "keyed"},
        {"ids": "drop"},
        {"keep": [{"column": "stars", "bins": [2, 4]}]},
        {"on_null_subject": "own"},
        {"keep": []},
    ],
    ids=str,
)
def test_the_rows_and_columns_of_a_run_come_back(policy, entries):
    made = policy(**entries)
    plan = RAW.lazy().dptext.privatize(made, select=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OtherTextWarning)
        assert guard(plan, policy=made) is plan
    selected = plan.collect()
    assert RAW.dptext.privatize(made, select=True).equals(selected)
    published = released(run_frame(RAW, made).published).collect()
    assert selected.schema == published.schema
    order = selected.columns
    assert selected.sort(order).equals(published.sort(order))


@pytest.mark.parametrize(
    ("entries", "error", "said"),
    [
        ({"per_subject": 1}, PolicyError, "per_subject needs all rows of a person"),
        ({"strict_columns": True}, InputError, "strict_columns"),
        ({"on_null_subject": "refuse"}, InputError, "1 row of a batch has no subject"),
        ({"keep": ["price"]}, InputError, "no column 'price'"),
        ({"subject": "person"}, InputError, "no column 'person'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_entries_that_an_expression_cannot_apply_are_refused_by_name(policy, entries, error, said):
    with pytest.raises(error, match=said) as caught:
        RAW.dptext.privatize(policy(**entries), select=True)
    assert "a good film" not in str(caught.value)


def test_a_policy_of_one_column_selects_it_and_the_id(policy):
    chosen = RAW.dptext.privatize(policy().column_policy("review"), id="id", select=True)
    assert chosen.columns == ["id", "review"]
    assert RAW.rename({"id": "key"}).dptext.privatize(policy(), id="key", select=True).columns == [
        "key",
        "stars",
        "review",
    ]


def test_the_guard_refuses_texts_of_the_policy_and_warns_of_other_strings(policy):
    texts = [
        {"name": name, "mechanism": {"name": "custext", "epsilon": 2.0}, "allow": ["cluster"]}
        for name in ("review", "notes")
    ]
    both, one = policy(column=texts), policy()
    plan = RAW.lazy().dptext.privatize(one)
    with pytest.raises(GateError, match="raw text of 'notes' reaches the output unreleased, in column 1"):
        guard(plan, policy=both)
    with pytest.warns(
        OtherTextWarning, match=r"strings that the policy does not name, unchanged: column 1, column 3\."
    ):
        guard(plan, policy=one)


@pytest.mark.parametrize("name", ["^review$", "*"])
def test_columns_are_selected_by_their_exact_names(policy, name):
    """Polars reads the names of other columns as patterns, which here match the text."""
    frame = RAW.drop("notes").with_columns(pl.lit("another text").alias(name))
    plan = frame.lazy().dptext.privatize(policy(), select=True)
    assert guard(plan, policy=policy()) is plan
    selected = plan.collect()
    assert selected.columns == ["id", "stars", "review"]
    summary = run_frame(frame, policy())  # the gates read the published table
    assert released(summary.published).collect().sort("id").equals(selected.sort("id"))
