"""What notebooks and prompts show of policies, mechanisms and verdicts: short, escaped, without keys."""

import pytest

from dptext_etl import ColumnPolicy, Policy, available, html_output, load
from dptext_etl.checks import Verdict


@pytest.mark.parametrize("name", available())
def test_a_mechanism_shows_what_differs_from_its_defaults(name):
    made = load(name).example()
    said = repr(made)
    assert said.startswith(f"{type(made).__name__}(epsilon=")
    assert len(said) < 120
    assert all(f"{field}=" in said for field in ("epsilon",))
    assert "mode=" not in said
    shown = made._repr_html_()
    assert made.guarantee.guarantee_class.value in shown
    assert f"<caption>{name}</caption>" in shown


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


def test_a_verdict_shows_its_sentence():
    verdict = Verdict("words", False, {"rows": 1000, "bad": 2}, "2 rows <hold> others", "words")
    assert repr(verdict) == "Verdict('words', FAILED: 2 rows <hold> others)"
    shown = verdict._repr_html_()
    assert "words: FAILED" in shown
    assert "2 rows &lt;hold&gt; others" in shown
    assert "rows 1,000, bad 2" in shown
    assert html_output.table("x", ["a"], [[True], [0.25], [{"b"}]]).count("<td>") == 3
