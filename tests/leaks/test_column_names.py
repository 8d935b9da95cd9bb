"""Names of columns that no policy declares may be texts (a pivot, a file without a header): no door quotes them."""

import logging

import polars as pl
import pytest

from dptext_etl import Policy
from dptext_etl.errors import DPTextError
from dptext_etl.polars import run_frame
from dptext_etl.runner import init, plan

TEXTS = ["zzqcellone of the reviews", "my user zzqcelltwo", "zzqcellthree id", "zzqcellfour.text"]


@pytest.fixture
def pivoted(bench, tmp_path):
    """A policy over a source with a column for each of some texts."""
    raw = pl.read_parquet(bench.policy.source)
    raw.with_columns(pl.lit(1).alias(text) for text in TEXTS).write_parquet(tmp_path / "raw.parquet")
    values = bench.policy.model_dump(mode="json", by_alias=True, exclude_none=True)
    places = {
        "source": str(tmp_path / "raw.parquet"),
        "sink": str(tmp_path / "out" / "reviews"),
        "staging": str(tmp_path / "inside"),
    }
    return Policy.parse({**values, **places, "ledger": {"url": f"sqlite:///{tmp_path / 'ledger.db'}"}})


def said_by(work):
    try:
        return repr(work())
    except DPTextError as error:
        return str(error)


def changed(policy, **values):
    return Policy.parse({**policy.model_dump(mode="json", by_alias=True, exclude_none=True), **values})


def drifting(policy, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    raw = pl.read_parquet(policy.source)
    raw.drop(TEXTS[0]).write_parquet(folder / "a.parquet")
    raw.write_parquet(folder / "b.parquet")
    return changed(policy, source=str(folder / "*.parquet"))


REFUSED = {
    "strict columns": lambda policy, _: changed(policy, strict_columns=True),
    "a missing column": lambda policy, _: changed(policy, keep=["stars", "absent"]),
    "files that differ": drifting,
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_refusals_name_places(pivoted, tmp_path, change):
    policy = change(pivoted, tmp_path)
    said = said_by(lambda: plan(policy))
    assert "column" in said
    assert "zzqcell" not in said
    frame = pl.read_parquet(pivoted.source)
    assert "zzqcell" not in said_by(lambda: run_frame(frame, changed(policy, source="frame")))


def test_plans_runs_and_everything_published_name_places(pivoted, tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "policy.json").write_text(pivoted.model_dump_json(by_alias=True, exclude_none=True))
    assert plan(pivoted).dropped == ["column 5", "column 6", "column 7", "column 8"]
    summary = run_frame(pl.read_parquet(pivoted.source), pivoted)
    assert "zzqcell" not in repr(summary) + str(summary.notes) + caplog.text + str(capsys.readouterr())
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "raw.parquet"]
    assert len(files) > 3
    assert not [path for path in files if b"zzqcell" in path.read_bytes()]


FIRST_LINES = {
    "no header": "1,zzqcellone of my reviews is that it is long,zzqcelltwo\n2,another,more\n",
    "no header, one text": "7,zzqcellshort\n8,other\n",
    "ids of letters": "r1,zzqcellone review,zzqcelltwo id of it that no one reads\nr2,second,more\n",
    "a pivot": "stars,zzqcellone of the reviews which is long,my user zzqcelltwo says it\n1,a,b\n",
}


@pytest.mark.parametrize("roles", [{}, {"id": "absent"}, {"texts": ["absent"]}])
@pytest.mark.parametrize("lines", FIRST_LINES.values(), ids=FIRST_LINES)
def test_a_first_policy_quotes_no_text_of_a_file_without_a_header(tmp_path, lines, roles):
    (tmp_path / "raw.csv").write_text(lines)
    assert "zzqcell" not in said_by(lambda: init(tmp_path / "raw.csv", **roles))
    if "7," in lines:
        assert "zzqcell" not in said_by(lambda: init(tmp_path / "raw.csv", id="7"))


def test_a_first_policy_names_the_columns_that_it_guessed_alone(tmp_path):
    pl.DataFrame({"id": ["a"], "user": ["u"], "review": ["t"], "zzqcellone text": [1]}).write_csv(tmp_path / "raw.csv")
    made = init(tmp_path / "raw.csv")
    assert 'name = "review"' in made
    assert "column 4" in made
    assert "zzqcell" not in made


FIRST_ROWS = {
    "a name is a value": ("zzqcellone,zzqcelltwo\na,b\nc, ZZQcelltwo \n", "a column holds its own name"),
    "a long name": (f"{'zzqcell' * 14},b\nc,d\n", "at most 40 letters"),
    "a name with a blank": ("zzqcellone a,zzqcelltwo\nb,c\n", "at most 40 letters"),
    "a name that begins with a digit": ("1zzqcell,zzqcelltwo\na,b\n", "begin with a letter"),
    "equal names": ("zzqcellone,zzqcellone\na,b\n", "the same name"),
    "names that differ in case": ("zzqcellone,ZZQcellone\na,b\n", "the same name"),
    "no row below": ("zzqcellone,zzqcelltwo\n", "no row"),
}


@pytest.mark.parametrize("door", ["init", "no column", "strict"])
@pytest.mark.parametrize(("lines", "why"), FIRST_ROWS.values(), ids=FIRST_ROWS)
def test_a_first_row_is_never_shown_as_names(bench, tmp_path, lines, why, door):
    (tmp_path / "raw.csv").write_text(lines)
    if door == "init":
        said = said_by(lambda: init(tmp_path / "raw.csv", id="absent"))
    elif door == "no column":
        said = said_by(lambda: plan(changed(bench.policy, source=str(tmp_path / "raw.csv"))))
    else:
        roles = (pl.lit("a").alias(name) for name in ("stars", "review", "note"))
        whole = pl.read_csv(tmp_path / "raw.csv").with_columns(*roles, id=pl.int_range(pl.len()))
        said = said_by(lambda: run_frame(whole, changed(bench.policy, source="frame", strict_columns=True)))
        why = "two of them are equal" if "same name" in why else why
    assert why in said
    assert "zzqcell" not in said.lower()


def test_names_are_shown_where_they_are_no_values(bench, tmp_path):
    names = pl.DataFrame({"id": [1], "Größe_2": ["c"], "revew": ["a"], "note": ["u"], "stars": [1]})
    names.write_csv(tmp_path / "raw.csv")
    said = said_by(lambda: plan(changed(bench.policy, source=str(tmp_path / "raw.csv"))))
    assert "Did you mean 'revew'?" in said
    whole = names.rename({"revew": "review"})
    said = said_by(lambda: run_frame(whole, changed(bench.policy, source="frame", strict_columns=True)))
    assert "what becomes of Größe_2 of the source" in said


@pytest.mark.parametrize(
    "first",
    ["zzqcell-0,zzqcell Smith,zzqcell review", "zzqcell-0,zzqcell user,zzqcellone", "zzqcell ref,NA,zzqcell note"],
)
def test_a_first_row_takes_no_role(tmp_path, first):
    """Its cells look like names, and are values of no other row."""
    number = first.split(",")[1] == "NA"
    cells = (f"a-{row},{row if number else f'b{row % 30}'},it was late on day {row}" for row in range(1, 300))
    (tmp_path / "raw.csv").write_text("\n".join((first, *cells)))
    said = said_by(lambda: init(tmp_path / "raw.csv"))
    assert "columns of strings are column 1, column" in said
    assert "zzqcell" not in said
