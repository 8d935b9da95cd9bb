"""The printed figures of papers 000, 001, 003 and 004, and our figures; orders are compared, not levels.

Printed numbers are facts, cited by table. Their errors are in docs/spec/privacy.md#relative-gain.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from frontier.paper_000 import paper_000
from frontier.paper_001 import paper_001
from frontier.paper_003 import paper_003
from frontier.paper_004 import paper_004


def sections(all_rows: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield every paper's title and its part of the page."""
    yield "004, CusText (Chen et al. 2023)", paper_004(all_rows)
    yield "003, DP-BART (Igamberdiev and Habernal 2023)", paper_003(all_rows)
    yield "000, DP-MLM (Meisenbacher et al. 2024)", paper_000(all_rows)
    yield "001, Spend your budget wisely (Meisenbacher, Lee, Matthes 2025)", paper_001(all_rows)
