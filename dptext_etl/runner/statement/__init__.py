"""State of one release, for the person who signs, what was released, what it cost, and how to verify it."""

from dptext_etl.runner.statement.facts import facts
from dptext_etl.runner.statement.sections import Section, sections
from dptext_etl.runner.statement.written import write

__all__ = ["Section", "facts", "sections", "write"]
