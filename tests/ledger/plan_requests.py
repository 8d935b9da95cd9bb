"""What writers ask of a ledger in the model test, as Hypothesis draws it: few ids, so that they meet."""

from hypothesis import strategies as st

from .full_scan import LATE, SCOPES

DATASETS = ("reviews", "left", "right", "rows", "free")
ROWS = [*((name, False) for name in "abcdef"), *((name, True) for name in "ax")]
"""Records and canary rows; one of these has the id of a record."""
COLUMNS = ("review", "title")
JOBS = ("first", "second", "shared", *map(str, range(20)))

some = st.lists(st.sampled_from(ROWS), min_size=2, max_size=7, unique=True)
writers = st.sampled_from(["one", "two"])
jobs = st.sampled_from(JOBS)
datasets = st.sampled_from(DATASETS)
seldom = st.integers(0, 5).map(lambda number: number == 5)
losses = st.sampled_from([0, 0, 2])
releases = st.sampled_from([("x", 0), ("x", 0), ("y", 0), ("x", 1)])
asked = st.fixed_dictionaries(
    {
        "scope": st.sampled_from([*SCOPES, *list(SCOPES)[:2], LATE]),
        "rows": some,
        "columns": st.sampled_from([COLUMNS[:1], COLUMNS[:1], COLUMNS[1:], COLUMNS]),
        "release": releases,
        "words": st.integers(0, 3),
        "same_words": st.booleans(),
        "changed": st.sampled_from([0, 0, 0, 1, 2]),  # none, some, all
        "shift": st.sampled_from([0, 0, 0, 0, 1]),
        "again": seldom,
        "refuse": seldom,
        "sealed": st.booleans(),
        "first_cap": seldom,
        "job": jobs,
    }
)
computed = st.fixed_dictionaries(
    {
        "pick": st.integers(0, 99),
        "rows": some,
        "known": seldom.map(lambda is_not: not is_not),
        "out": st.sampled_from(["out", "out", "other"]),
        "positions": seldom,
        "spent": st.sampled_from([None, None, 0, 1, 2, 9]),
        "job": jobs,
    }
)
done_meanwhile = st.fixed_dictionaries(
    {
        "asks": st.lists(asked, max_size=2),
        "commits": st.none() | computed,
        "end": st.none() | jobs,
        "near": st.booleans(),  # in the same scope, release, and columns
    }
)
