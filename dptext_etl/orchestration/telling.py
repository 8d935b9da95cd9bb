"""Tell Dagster's log how far a step is: the same counts, rate and remaining time that a terminal sees."""

from __future__ import annotations

import logging

from dptext_etl.runner.progress import Listener, Progress, seldom


def teller(log: logging.Logger, partition: str | None) -> Listener:
    """Return a listener that logs a line now and then, and one at the end of every phase."""
    where = f"{partition}: " if partition else ""

    def tell(seen: Progress) -> None:
        took = f" in {seen.seconds:.1f} s" if seen.ended else ""
        log.info(f"{where}{seen.phase}: {seen}{took}")

    return seldom(tell)
