"""The guard on Polars plans: a release is the only way from a raw column to an output."""

import io
import sys
from pathlib import Path

import polars as pl
import pytest

import dptext_etl.polars
from dptext_etl import ColumnPolicy, _kernel, available, load
from dptext_etl.errors import GateError, PolicyError
from dptext_etl.polars.plan_marks import RELEASES, Mark

RAW = ["review"]
FRAME = pl.DataFrame({"id": ["a", "b"], "review": ["good film", "bad plot"], "stars": [5, 1], "tags": [["x"], ["y"]]})


def _bytes(write):
    file = io.BytesIO()
    write(file)
    return file.getvalue()


SOURCES = {
    "parquet": lambda folder: (FRAME.write_parquet(folder / "raw"), pl.scan_parquet(folder / "raw"))[1],
    "ipc": lambda folder: (FRAME.write_ipc(folder / "raw"), pl.scan_ipc(folder / "raw"))[1],
    "ndjson": lambda folder: (FRAME.write_ndjson(folder / "raw"), pl.scan_ndjson(folder / "raw"))[1],
    "bytes of parquet": lambda _: pl.scan_parquet(_bytes(FRAME.write_parquet)),
    "bytes of ipc": lambda _: pl.scan_ipc(_bytes(FRAME.write_ipc)),
    "memory": lambda _: FRAME.lazy(),
    "ipc, cached": lambda folder: (FRAME.write_ipc(folder / "raw"), pl.scan_ipc(folder / "raw").cache())[1],
    "ipc, by SQL": lambda folder: (
        FRAME.write_ipc(folder / "raw"),
        pl.SQLContext(t=pl.scan_ipc(folder / "raw")).execute("with u as (select * from t) select * from u"),
    )[1],
}


@pytest.fixture
def lf(tmp_path):
    FRAME.write_parquet(tmp_path / "lf")
    return pl.scan_parquet(tmp_path / "lf")


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    return SOURCES[request.param](tmp_path)


def make_policy(mechanism, **more):
    allow = mechanism.guarantee.disclosures
    entries = {"dataset": "d", "column": "review", "release": "r", "key": "env:DPTEXT_SECRET", "allow": allow}
    return ColumnPolicy(**{**entries, **more}, mechanism=mechanism)


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    monkeypatch.setenv("DPTEXT_SECRET", "5a" * 32)


@pytest.fixture
def policy():
    return make_policy(load("custext").example())


@pytest.fixture(params=available())
def any_policy(request):
    return make_policy(load(request.param).example())


col = pl.col


def release(policy, text=None, id="id", **options):  # noqa: A002
    text = col("review") if text is None else text
    return text.dptext.privatize(policy, id=col(id) if isinstance(id, str) else id, **options)


def guard(plan, policy):
    return dptext_etl.polars.guard(plan, policy=policy, id="id")


CLEAN = {
    "dropped": lambda lf: lf.drop("review"),
    "selected away": lambda lf: lf.select("id", "stars"),
    "other columns work": lambda lf: (
        lf.with_columns(twice=col("stars") * 2).filter(col("stars") > 1).sort("id").drop("review")
    ),
    "counted": lambda lf: lf.group_by("stars").agg(pl.len()),
    "joined beside": lambda lf: lf.join(lf.select("id", other="stars"), on="id").select("id", "other"),
    "overwritten": lambda lf: lf.with_columns(review=pl.lit("gone")),
    "unpivoted beside": lambda lf: lf.drop("review", "tags").unpivot(index="id"),
    "numbered": lambda lf: lf.drop("review").with_row_index(),
    "exploded beside": lambda lf: lf.drop("review").explode("tags"),
}
LEAKS = {
    "as it is": lambda lf: lf,
    "renamed": lambda lf: lf.rename({"review": "q"}),
    "aliased": lambda lf: lf.select("id", x=col("review")),
    "made longer": lambda lf: lf.select(x=col("id") + " " + col("review")),
    "length": lambda lf: lf.select(x=col("review").str.len_chars()),
    "case": lambda lf: lf.select(x=col("review").str.to_uppercase().str.reverse()),
    "encoded": lambda lf: lf.select(x=col("review").str.encode("base64")),
    "in a struct": lambda lf: lf.select(s=pl.struct("id", "review")),
    "in a choice": lambda lf: lf.select(x=pl.when(col("review") == "good film").then(1).otherwise(0)),
    "in two steps": lambda lf: lf.with_columns(q=col("review")).drop("review").rename({"q": "z"}),
    "aggregated": lambda lf: lf.group_by("stars").agg(col("review").first()),
    "a window": lambda lf: lf.select(x=col("stars").sum().over("review")),
    "sorted by it": lambda lf: lf.select(x=col("stars").sort_by("review")),
    "joined in": lambda lf: lf.select("id").join(lf.select("id", x="review"), on="id"),
    "joined from the right": lambda lf: lf.select("id", x="review").join(lf.select("id"), on="id", how="right"),
    "joined twice": lambda lf: lf.join(lf, on="id").drop("review"),
    "stacked": lambda lf: pl.concat([lf.select("id"), lf.select(id="review")]),
    "side by side": lambda lf: pl.concat([lf.select("id"), lf.select("review")], how="horizontal"),
    "unpivoted": lambda lf: lf.drop("tags").unpivot(index="id", on=["review"]),
    "hashed": lambda lf: lf.select(x=col("review").hash()),
    "a series in the plan": lambda lf: lf.select("id", x=pl.lit(FRAME["review"])),
}
CHOICES = {
    "filtered": lambda lf: lf.filter(col("review").str.contains("good")).select("id"),
    "filtered later": lambda lf: (
        lf.with_columns(x=col("review").str.len_chars()).head(100).filter(col("x") > 3).select("id")
    ),
    "ordered": lambda lf: lf.sort("review").select("id"),
    "distinct": lambda lf: lf.unique(subset=["review"]).select("id"),
    "joined on": lambda lf: lf.join(lf, on="review").select("id"),
    "grouped": lambda lf: lf.group_by("review").agg(pl.len()).select("len"),
}
OPAQUE = {
    "a Python function": lambda lf: lf.select(x=col("review").map_elements(len, return_dtype=pl.Int64)),
    "a function of frames": lambda lf: lf.map_batches(lambda frame: frame),
    "an evaluation of lists": lambda lf: lf.select(x=pl.concat_list("review").list.eval(pl.element())),
}


@pytest.mark.parametrize("name", CLEAN)
def test_plans_without_raw_text_pass(source, name):
    plan = CLEAN[name](source)
    assert dptext_etl.polars.guard(plan, raw=RAW) is plan
    plan.collect()


@pytest.mark.parametrize("name", LEAKS)
def test_raw_text_in_an_output_is_refused(source, name):
    plan = LEAKS[name](source)
    plan.collect()
    with pytest.raises(GateError, match="raw text reaches the output unreleased, in '") as caught:
        dptext_etl.polars.guard(plan, raw=RAW)
    assert caught.value.exit_code == 4
    assert "dptext.privatize" in str(caught.value)


@pytest.mark.parametrize("name", CHOICES)
def test_rows_that_raw_text_chooses_are_refused(source, name):
    with pytest.raises(GateError, match=r"raw text.* decides"):
        dptext_etl.polars.guard(CHOICES[name](source), raw=RAW)


@pytest.mark.parametrize("name", OPAQUE)
def test_what_cannot_be_followed_is_refused(source, name):
    with pytest.raises(GateError, match=r"does not show|cannot be followed"):
        dptext_etl.polars.guard(OPAQUE[name](source), raw=RAW)


def test_raw_text_beside_a_proper_release_is_refused(source, lf, policy):
    """The ways that were found: another source of the same text, joined or put below what was released."""
    released = lf.select("id", release(policy))
    for plan in (
        released.join(source.select("id", comment="review"), on="id"),
        pl.concat([released, source.select("id", "review")]),
        pl.concat([released, source.select(other="review")], how="horizontal"),
        pl.SQLContext(a=released, b=source).execute("select a.id, b.review as c from a join b on a.id = b.id"),
    ):
        with pytest.raises(GateError, match="unreleased, in '"):
            guard(plan, policy)


def test_a_field_of_a_struct_is_a_column_too():
    nested = pl.LazyFrame({"id": ["a"], "doc": [{"review": "good film"}], "many": [[{"review": "x"}]]})
    for plan in (nested.select("doc"), nested.select(x=col("doc").struct.field("review")), nested.select("many")):
        with pytest.raises(GateError, match="unreleased, in '"):
            dptext_etl.polars.guard(plan, raw=RAW)
    dptext_etl.polars.guard(nested.select("id"), raw=RAW)


def test_a_released_column_is_followed_no_further(lf, any_policy):
    for plan in (
        lf.with_columns(release(any_policy)),
        lf.with_columns(release(any_policy)).filter(col("review").str.contains("good")).sort("review"),
        lf.select("id", text=release(any_policy)).group_by("text").agg(pl.len()),
        lf.with_columns(release(any_policy, spend=True)).select(col("review").struct.field("text")),
        lf.dptext.privatize(any_policy, id="id"),
        pl.concat([lf.with_columns(release(any_policy)), lf.with_columns(release(any_policy))]),
    ):
        guard(plan, any_policy)
        dptext_etl.polars.guard(plan, raw=RAW)
    with pytest.raises(GateError, match="unreleased, in 'copy'"):
        guard(lf.with_columns(release(any_policy), copy="review"), any_policy)
    with pytest.raises(GateError, match=r"raw text.* decides"):
        guard(lf.filter(col("review") != "").with_columns(release(any_policy)), any_policy)


OWN_ROWS = {
    "as it is": lambda lf, p: lf.select(release(p)),
    "cleaned": lambda lf, p: lf.select(
        release(p, col("review").fill_null("").str.strip_chars().str.to_lowercase().str.replace_all("a", "b"))
    ),
    "cast": lambda lf, p: lf.select(release(p, col("review").cast(pl.Categorical).cast(pl.String))),
    "cleaned before": lambda lf, p: lf.with_columns(col("review").str.normalize("NFC")).select("id", release(p)),
    "rows chosen": lambda lf, p: lf.filter(col("stars") > 1).sort("id").unique("id").head(1).select(release(p)),
    "joined on ids": lambda lf, p: lf.select("id", "stars").join(lf.select("id", "review"), on="id").select(release(p)),
    "joined from the left": lambda lf, p: (
        lf.select("id").join(lf.select("id", "review"), on="id", how="left").select(release(p))
    ),
    "repeated": lambda lf, p: lf.join(lf.select(k="stars"), how="cross").select(release(p)),
    "below each other": lambda lf, p: pl.concat([lf, lf]).select(release(p)),
    "exploded beside": lambda lf, p: lf.explode("tags").select(release(p)),
    "grouped": lambda lf, p: lf.group_by("stars").agg(release(p)),
    "by SQL": lambda lf, p: pl.SQLContext(t=lf).execute("select id, trim(review) as review from t").select(release(p)),
}
OTHER_ROWS = {
    "an aggregate": lambda lf, p: lf.select(release(p, col("review").first())),
    "a maximum": lambda lf, p: lf.select(release(p, col("review").max())),
    "one row": lambda lf, p: lf.select(release(p, col("review").head(1))),
    "a place": lambda lf, p: lf.select(release(p, col("review").get(0))),
    "a window": lambda lf, p: lf.select(release(p, col("review").first().over("stars"))),
    "shifted": lambda lf, p: lf.select(release(p, col("review").shift(1))),
    "filled forward": lambda lf, p: lf.select(release(p, col("review").forward_fill())),
    "sorted": lambda lf, p: lf.select(release(p, col("review").sort())),
    "exploded": lambda lf, p: lf.select(release(p, col("review").str.split(" ").explode())),
    "aggregated before": lambda lf, p: lf.with_columns(col("review").first()).select(release(p)),
    "grouped before": lambda lf, p: lf.group_by("stars").agg(col("id", "review").first()).select(release(p)),
    "ids of other rows": lambda lf, p: lf.select("id").join(lf.select("review"), how="cross").select("id", release(p)),
    "side by side": lambda lf, p: pl.concat(
        [lf.select(col("id").sort()), lf.select("review")], how="horizontal"
    ).select(release(p)),
    "made longer": lambda lf, p: lf.select(release(p, pl.concat_str("review", pl.lit(" again")))),
    "replaced by a column": lambda lf, p: lf.select(release(p, _replaced())),
    "computed ids": lambda lf, p: lf.select(release(p, id=col("id") + "1")),
    "computed ids before": lambda lf, p: lf.with_columns(id=col("id") + "1").select(release(p)),
    "numbered": lambda lf, p: lf.select(release(p, id=pl.int_range(pl.len()))),
    "another id": lambda lf, p: lf.select(release(p, id="stars")),
    "in two forms": lambda lf, p: lf.select(release(p), x=release(p, col("review").str.to_lowercase())),
}


def _replaced():
    return col("review").str.replace("a", col("id"))


@pytest.mark.parametrize("name", OWN_ROWS)
def test_texts_of_their_own_rows_are_released(tmp_path, policy, name):
    plan = OWN_ROWS[name](SOURCES["ipc"](tmp_path), policy)
    assert guard(plan, policy) is plan
    plan.collect()


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_texts_that_several_ids_could_have_are_refused(lf, policy, name):
    with pytest.raises(GateError, match=r"own row|different rows|computed record ids|several forms|names 'id'"):
        guard(OTHER_ROWS[name](lf, policy), policy)


def test_a_proper_release_passes_over_every_source(source, policy):
    plan = source.select("id", release(policy))
    assert guard(plan, policy) is plan
    assert plan.collect().height == 2


OTHER_POLICIES = {
    "mechanism": lambda p: {"mechanism": type(p.mechanism)(**{**p.mechanism.model_dump(), "epsilon": 100.0})},
    "release": lambda _: {"release": "r2"},
    "dataset": lambda _: {"dataset": "e"},
    "key": lambda _: {"key": "env:ANOTHER_SECRET"},
    "nonce": lambda _: {"nonce": 1},
}


@pytest.mark.parametrize("what", OTHER_POLICIES)
@pytest.mark.parametrize("kind", ["custext", "madlib"])
def test_a_release_that_is_not_the_policys_is_refused(lf, kind, what):
    mine = make_policy(load(kind).example())
    plan = lf.select("id", release(mine.model_copy(update=OTHER_POLICIES[what](mine))))
    dptext_etl.polars.guard(plan, raw=RAW)  # without a policy there is nothing to compare with
    with pytest.raises(GateError, match="differs from the policy's"):
        guard(plan, mine)


def test_a_column_that_the_policy_does_not_name_is_refused(lf, policy):
    other = policy.model_copy(update={"column": "note"})
    both = lf.with_columns(note=col("review"))
    with pytest.raises(GateError, match="the policy has no text column 'review'"):
        dptext_etl.polars.guard(both.select(release(policy)), raw=RAW, policy=other, id="id")


def test_benchmarks_are_no_releases(lf, policy):
    faithful = make_policy(type(policy.mechanism)(**{**policy.mechanism.model_dump(), "mode": "faithful"}))
    plan = lf.select("id", release(faithful))
    with pytest.raises(GateError, match="mode faithful"):
        dptext_etl.polars.guard(plan, raw=RAW)
    with pytest.raises(GateError, match="mode faithful"):
        guard(plan, policy)
    with pytest.raises(PolicyError, match="for benchmarks"):
        guard(plan, faithful)


def test_a_policy_of_a_dataset_names_columns_and_ids(lf, policy, tmp_path):
    mechanism = {"name": "custext", **policy.mechanism.model_dump(mode="json", exclude_unset=True)}
    entries = {"dataset": "d", "release": "r", "source": "a", "sink": "b", "unit": "record", "ledger": {"url": "l.db"}}
    column = {"name": "review", "mechanism": mechanism, "allow": ["cluster"]}
    whole = dptext_etl.Policy.parse({**entries, "id": "id", "key": "env:DPTEXT_SECRET", "column": [column]})
    dptext_etl.polars.guard(lf.dptext.privatize(whole, id="id"), policy=whole)
    with pytest.raises(GateError, match="unreleased"):
        dptext_etl.polars.guard(lf, policy=whole)
    with pytest.raises(GateError, match="names 'id'"):
        dptext_etl.polars.guard(lf.dptext.privatize(whole, id="stars"), policy=whole)
    with pytest.raises(PolicyError, match="names no id column"):
        dptext_etl.polars.guard(lf, policy=policy)


def test_record_ids_are_no_raw_text(policy, lf):
    plan = lf.with_columns(release(policy, id=col("review").str.slice(0, 3)))
    with pytest.raises(GateError, match="enters a release as the record id"):
        guard(plan, policy)


def test_a_mark_on_anything_else_is_no_release(lf, policy):
    """The kernel's functions, called by hand, say nothing of what they release."""
    from polars.plugins import register_plugin_function

    from dptext_etl import _kernel

    for args in ([col("review"), col("id")], [col("review"), col("id"), col("review")]):
        forged = register_plugin_function(plugin_path=_kernel.__file__, function_name="dptext_released", args=args)
        with pytest.raises(GateError, match=r"another version|does not say"):
            guard(lf.select(forged), policy)


def test_a_sink_is_an_output(lf, tmp_path, policy):
    guard(lf.with_columns(release(policy)).sink_parquet(tmp_path / "out.parquet", lazy=True), policy)
    with pytest.raises(GateError, match="unreleased"):
        guard(lf.sink_parquet(tmp_path / "out.parquet", lazy=True), policy)


def test_frames_in_memory_and_sql(policy):
    frame = FRAME.lazy()
    guard(frame.with_columns(release(policy)), policy)
    query = pl.SQLContext(t=frame).execute("select id, review as r from t where stars > 1")
    with pytest.raises(GateError, match="in 'r'"):
        guard(query, policy)
    guard(pl.SQLContext(t=frame).execute("select id from t"), policy)


def test_a_mistyped_name_is_said(lf):
    for raw in (["reveiw"], "reveiw"):
        with pytest.raises(PolicyError, match="no source of the plan has a column 'reveiw'"):
            dptext_etl.polars.guard(lf.drop("review"), raw=raw)
    with pytest.raises(PolicyError, match="knows no raw column"):
        dptext_etl.polars.guard(lf)


def test_one_name_is_one_column(lf):
    with pytest.raises(GateError, match="in 'review'"):
        dptext_etl.polars.guard(lf, raw="review")


def test_the_kernel_is_known_below_the_environment_and_behind_a_link(tmp_path, monkeypatch):
    """As in an installed wheel, whose path Polars writes relative to the environment."""
    kernel = Path(_kernel.__file__)
    monkeypatch.setattr(sys, "prefix", str(kernel.parent))
    (tmp_path / "link").symlink_to(kernel.parent)
    for library, known in ((kernel.name, True), (str(tmp_path / "link" / kernel.name), True), ("other.so", False)):
        assert Mark.is_one(("ffi_plugin", library, RELEASES, b"")) == known
