"""A run and its report: the policy names the columns, the manifest their cost."""

import json

from tests.command_line import dptext
from tests.later import later

later("sklearn", reason="scikit-learn is not installed (extra: eval)")
later("sacrebleu", reason="sacrebleu is not installed (extra: eval)")


def test_a_policy_is_all_that_a_report_needs(policy_of_job, tmp_path, sentinel):
    done = dptext("evaluate", policy_of_job, "--label", "stars", "--rows", 24, "--out", tmp_path / "report")
    assert done.exit_code == 0, done.output
    (review,) = json.loads((tmp_path / "report" / "evidence.json").read_text())["columns"]
    assert (review["rows"], review["of"]) == (24, 240)
    cost = review["cost"]
    assert (cost["mechanism"], cost["unit epsilon"], cost["unit"]) == ("custext", 2.0, "word")
    assert sentinel not in done.output + (tmp_path / "report" / "evidence.html").read_text()
    page = dptext("statement", policy_of_job, "--evidence", tmp_path / "report", "--json").stdout
    (found,) = json.loads(page)["reidentified"]
    assert (found["column"], found["rows"]) == ("review", 24)
    assert found["blind"] == 1 / 24 < found["value"]
    within = dptext("evaluate", policy_of_job, "--out", policy_of_job.parent / "published" / "report")
    assert (within.exit_code, "in the published table" in within.output) == (5, True)
