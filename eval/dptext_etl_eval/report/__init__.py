"""Write what was measured as a page for people and as JSON, inside the boundary."""

from dptext_etl_eval.report.folder import write

__all__ = ["write"]
