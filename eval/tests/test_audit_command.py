"""The command that audits a policy, and tables or weights that state another loss than they have."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from dptext_etl import Policy
from dptext_etl.cli.app import app
from dptext_etl.families import distance, lists
from dptext_etl.mechanism import Released
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.santext import SanText
from dptext_etl_eval import audit, audit_mechanism
from dptext_etl_eval.auditing.certificate import certificate_of
from dptext_etl_eval.commands import audit as command
from eval.tests.planted_keys import SECRETS
from tests.policy_files import custext_column, policy_in, write_policy


@pytest.fixture
def policy_file(tmp_path, small_vectors):
    review = custext_column(small_vectors, "review", k=5)
    plus = {"name": "santext", "variant": "plus", "epsilon": 2.0, "vectors": small_vectors}
    title = {"name": "title", "mechanism": plus, "allow": ["sens_class"], "accept_unbounded": ["UMLDP"]}
    values = policy_in(tmp_path, review, title).model_dump(mode="json", by_alias=True, exclude_none=True)
    return write_policy(tmp_path / "privacy.toml", values)


def test_the_command_reads_no_data_and_no_key(policy_file):
    done = CliRunner().invoke(app, ["audit", str(policy_file), "--draws", "2000", "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert tuple(found) == command.KEYS
    assert [column["column"] for column in found["columns"]] == ["review", "title"]
    assert [column["by_table"] for column in found["columns"]] == ["holds", "not applicable"]
    assert not found["refuted"]
    shown = CliRunner().invoke(app, ["audit", str(policy_file), "--draws", "2000"])
    assert shown.exit_code == 0
    assert "exact, from every row of the table, 103 words" in shown.stdout
    assert "no finite epsilon is claimed" in shown.stdout
    assert len(audit(Policy.load(policy_file), draws=1_000)) == 2


def test_several_policies_are_compared_by_what_they_claim_and_what_trials_show(policy_file, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(policy_file.read_text().replace('"epsilon" = 2.0', '"epsilon" = 6.0', 1))
    words = ["audit", str(policy_file), str(other), "--draws", "2000"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    one, two = json.loads(done.stdout)["policies"]
    assert tuple(one) == tuple(two) == command.KEYS
    assert [item["columns"][0]["claim"] for item in (one, two)] == [2.0, 6.0]
    shown = CliRunner().invoke(app, words).stdout.partition("Empirical epsilon across mechanisms")[2]
    rows = [line.split() for line in shown.splitlines() if line.startswith("review")]
    assert [float(row[3]) for row in rows] == [2.0, 6.0]
    assert [float(row[3]) >= float(row[4]) >= float(row[5]) > 0 for row in rows] == [True, True]


def test_a_refuted_claim_ends_the_command_with_4(policy_file, monkeypatch):
    honest = CusText.release

    def in_clear(self, texts, keys):
        released = honest(self, texts, keys)
        known = pc.is_in(texts, pa.array(self.input_words(), pa.large_string()))
        return Released(pc.if_else(known, released.text, texts), released.positions)

    monkeypatch.setattr(CusText, "release", in_clear)
    done = CliRunner().invoke(app, ["audit", str(policy_file), "--draws", "2000"])
    assert done.exit_code == 4
    assert "a claim is refuted, of column 'review'" in done.stderr
    assert "refuted" in done.stdout


@pytest.mark.parametrize(
    ("mechanism", "states"),
    [
        (SanText(epsilon=4.0, limit=40), (distance.PairWeights, "worst_log_ratio", lambda it: 0.1)),
        (Diffractor(epsilon=1.5, limit=40), (lists.TemDistribution, "loss", lambda it, places: (0.1, 0.1))),
        (Diffractor(epsilon=1.5, limit=40, walks=2), (lists.TemDistribution, "mixture_loss", lambda tem, orders: 0.1)),
    ],
    ids=["santext", "tem", "tem-mixture"],
)
def test_a_table_that_understates_itself_is_found_by_other_code(mechanism, states, monkeypatch, tmp_path):
    """Planted in the code that states the loss of a table: a certificate by the same code would agree with it."""
    monkeypatch.setenv("DPTEXT_CACHE", str(tmp_path))
    honest = certificate_of(mechanism).realized
    monkeypatch.setattr("dptext_etl.mechanism._compare", lambda *_: None)  # else the library refuses the table before
    monkeypatch.setattr(*states)
    made = type(mechanism)(**mechanism.model_dump(exclude_unset=True) | {"epsilon": mechanism.epsilon / 1.001})
    found = audit_mechanism(made, draws=1_000, secrets=SECRETS)
    assert found.stored == pytest.approx(0.1, abs=1e-6)
    assert (found.certificate.realized, found.by_table) == (pytest.approx(honest, rel=0.01), "refuted")


def test_weights_that_are_not_those_of_the_formula_have_no_bound(monkeypatch):
    honest = distance.PairWeights.weights
    mechanism = SanText(epsilon=4.0, limit=40)
    assert math.isfinite(certificate_of(mechanism).realized)
    monkeypatch.setattr(
        distance.PairWeights, "weights", lambda law, rows: np.maximum(honest(law, rows), np.uint64(2**45))
    )
    assert certificate_of(mechanism).realized == math.inf
