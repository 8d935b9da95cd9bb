"""Judge released data with Great Expectations."""

from dptext_etl.checks.verdict import ExpectationOutcome, VerdictRecord

__all__ = ["ExpectationOutcome", "VerdictRecord"]
