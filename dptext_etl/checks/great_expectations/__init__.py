"""Judge released data with Great Expectations."""

from dptext_etl.checks.great_expectations.verdict_record import ExpectationOutcome, VerdictRecord

__all__ = ["ExpectationOutcome", "VerdictRecord"]
