"""The suite of a policy over tables of databases: the same counts as over a frame, and nothing quoted."""

import json
import logging

import polars as pl
import pytest

from dptext_etl.errors import GateError
from tests.later import later
from tests.quick import quick

from .expectation_runs import checkpoint_of, quoted

gx = later("great_expectations")
sqlalchemy = later("sqlalchemy")

dptx = later("dptext_etl.checks.great_expectations.expectations")


@pytest.fixture(scope="module", params=quick(["sqlite", "postgresql"]))
def database(request, tmp_path_factory):
    """A database of each kind: its URL, and a function that writes a frame into a table of a new name."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('sql') / 'tables.db'}"
        engine = sqlalchemy.create_engine(url)
    else:
        server = request.getfixturevalue("postgres")
        url = server.url().partition("?")[0]
        driver = url.replace("postgresql://", "postgresql+psycopg://", 1)
        engine = sqlalchemy.create_engine(driver, client_encoding="UTF8")
    names = iter(f"released_{number}" for number in range(100))

    def write(frame):
        name = next(names)
        frame.to_pandas().to_sql(name, engine, index=False)
        return name

    yield url, write
    engine.dispose()


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
def test_a_correct_release_holds(bench, database):
    url, write = database
    record = dptx.validate_table(url, write(bench.published), bench.policy)
    assert record.success
    assert record.evaluated == record.expected == 4
    assert record.outcomes == dptx.validate(bench.published, bench.policy).outcomes


BUGS = {
    "a column is missing": lambda table: table.drop("stars"),
    "a column more": lambda table: table.with_columns(pl.lit(1).alias("more")),
    "texts moved": lambda table: table.with_columns(pl.col("note").shift(1)),
    "case": lambda table: table.with_columns(pl.col("note").str.to_titlecase()),
    "other ids": lambda table: table.with_columns(pl.col("id") + 5000),
}


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_planted_bugs_are_counted_as_over_a_frame(bench, database, bug):
    url, write = database
    record = dptx.validate_table(url, write(bug(bench.published)), bench.policy)
    assert not record.success
    assert record.outcomes == dptx.validate(bug(bench.published), bench.policy).outcomes


def test_raw_text_is_stopped_and_not_quoted(bench, database, leaking, long_forbidden, caplog, capfd):
    url, write = database
    caplog.set_level(logging.DEBUG, "great_expectations")
    record = dptx.validate_table(url, write(leaking), bench.policy)
    stopped = {item.gate: item for item in record.outcomes if not item.success}
    assert stopped["canary_text_absent"].counts["hits"] > 0
    with pytest.raises(GateError) as caught:
        record.require()
    out, err = capfd.readouterr()
    assert not quoted(str(caught.value) + json.dumps(record.as_dict()) + caplog.text + out + err, long_forbidden)


@pytest.mark.parametrize("result_format", quick(["COMPLETE", "BOOLEAN_ONLY", "SUMMARY"]))
def test_a_users_own_context_quotes_nothing(bench, database, leaking, long_forbidden, result_format):
    url, write = database
    context = gx.get_context(mode="ephemeral")
    if url.startswith("sqlite"):
        source = context.data_sources.add_sqlite("made", connection_string=url)
    else:
        place = f"{url.replace('postgresql://', 'postgresql+psycopg://', 1)}?client_encoding=UTF8"
        source = context.data_sources.add_postgres("made", connection_string=place)
    definition = source.add_table_asset("released", table_name=write(leaking)).add_batch_definition_whole_table("whole")
    result = checkpoint_of(context, definition, bench.policy)[0].run(result_format=result_format)
    assert not result.success
    assert not quoted(json.dumps(result.to_json_dict()["results"]), long_forbidden)


def test_an_empty_or_missing_table_is_no_success(bench, database):
    url, write = database
    assert not dptx.validate_table(url, write(bench.published.clear()), bench.policy).success
    with pytest.raises(GateError):
        dptx.validate_table(url, "no_such_table", bench.policy)
