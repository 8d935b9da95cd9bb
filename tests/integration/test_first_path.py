"""The commands of README lead to a release that beats every baseline, at a small epsilon per person."""

import re
import shlex
from pathlib import Path

import pytest

from dptext_etl import Policy
from dptext_etl.policy.synthetic import CLAIM
from tests.command_line import dptext, facts

README = Path(__file__).resolve().parents[2] / "README.md"


def commands():
    """The commands of the first block."""
    block = README.read_text(encoding="utf-8").partition("## Three commands")[2].partition("```sh\n")[2]
    lines = block.partition("```")[0].strip().splitlines()
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.slow
@pytest.mark.thorough
def test_three_commands_beat_every_baseline_by_more_than_a_fiftieth(tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
    pytest.importorskip("dptext_etl_eval")
    from dptext_etl_eval.baselines import FREE
    from dptext_etl_eval.measure import DISCRIMINANT as CLASSIFIER

    monkeypatch.chdir(tmp_path)
    listed = commands()
    assert [words[:2] for words in listed] == [["dptext", name] for name in ("demo", "init", "run")]
    for words in listed:
        done = dptext(*words[1:])
        assert done.exit_code == 0, done.output
    policy = Policy.load("privacy.toml")
    assert policy.synthetic.per_subject * policy.statistic.charge(CLAIM).eps_approx <= 4_000_000
    (column,) = facts("evaluate", "privacy.toml", "--tested", "sample/public.parquet", "--rows", 1_000)["columns"]
    (measured,) = column["metrics"]
    scores = {re.sub("^macro-F1, ", "", item["what"]): item["value"] for item in measured["scores"]}
    best = max(scores[name] for name in FREE if name in scores)
    assert min(scores[CLASSIFIER], scores["learned from the synthetic table"]) > best + 0.02
    assert column["verdict"].startswith(f"Use the {CLASSIFIER} (macro-F1")
