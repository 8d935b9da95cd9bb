"""What plans, runs, and statements show of an ordinary policy fits on one screen; `--full` shows every detail."""

import re

from tests.command_line import dptext

LINES = 40


def test_screens_have_at_most_40_lines(job, tmp_path):
    policy = job.write_policy()
    planned, ran = dptext("plan", policy).output, dptext("run", policy).output
    dptext("statement", policy, "--out", tmp_path)
    page = (tmp_path / "statement.md").read_text()
    again = dptext("run", policy, "--full").output
    for shown in (planned, ran, page):
        assert len(shown.splitlines()) <= LINES
        assert "quarantin" not in shown
    for stated in ("single out 0 of 240 rows", "ε 20,000 for the longest text", "cap of a subject", "9 gates passed"):
        assert stated in page
    assert "| public input" not in page
    assert "9 passed; --full lists them" in ran
    assert "copies_within_chance  within chance  2 text columns" in ran
    assert "rows_ledgered" not in ran
    assert re.search(r"words_in_output_set +passed +all \d,\d{3} words are in the output set", again)
    assert "ngrams_within_chance  within chance  column 'note'" in again
