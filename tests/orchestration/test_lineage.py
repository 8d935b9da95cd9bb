"""The taint guard of an asset graph: its steps, its refusals, its messages."""

import pytest

from dptext_etl import orchestration
from dptext_etl.errors import GateError, PolicyError
from tests.later import later
from tests.policy_files import custext_column, policy_in

dg = later("dagster", reason="dagster is not installed")
MONTHS = ["2026-01", "2026-02"]
RAW, PUBLIC = {"dptext/raw": ""}, {"dptext/public": ""}


@pytest.fixture(scope="module")
def policy(tmp_path_factory, small_vectors):
    folder = tmp_path_factory.mktemp("lineage")

    def make(dataset):
        places = {"source": str(folder / "raw" / "{partition}.parquet")}
        places |= {"sink": str(folder / "published" / "{partition}"), "key": "env:DPTEXT_SECRET"}
        return policy_in(folder, custext_column(small_vectors, "note"), dataset=dataset, **places)

    return make


@pytest.fixture(scope="module")
def notes(policy):
    return orchestration.build_definitions(policy("notes"), partitions=MONTHS)


def asset(name, deps, **more):
    @dg.asset(name=name, deps=deps, **more)
    def step(): ...

    return step


def check(name, on, *, also=(), **more):
    @dg.asset_check(name=name, asset=on, additional_deps=list(also), **more)
    def judge() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    return judge


def merged(notes, *assets, checks=()):
    return dg.Definitions.merge(notes, dg.Definitions(assets=list(assets), asset_checks=list(checks)))


def refusal(defs, **options):
    with pytest.raises(GateError) as refused:
        orchestration.check_lineage(defs, **options)
    return refused.value


def ways(refused):
    return [line.strip() for line in refused.message.splitlines()[1:]]


def test_a_project_that_reads_what_is_published_passes_and_is_returned(notes):
    parts = dg.StaticPartitionsDefinition(MONTHS)
    topics = asset("topics", ["published_notes"], partitions_def=parts)
    judged = check("enough", "topics", also=["published_notes"], blocking=True)
    defs = merged(notes, topics, asset("board", ["topics"]), checks=[judged])
    assert orchestration.check_lineage(defs) is defs
    assert orchestration.check_lineage(defs.get_repository_def())


def test_the_shortest_way_is_written_out_with_what_to_read_instead(notes):
    defs = merged(notes, asset("clean", ["raw_notes"]), asset("topics", ["clean"]), asset("board", ["topics"]))
    refused = refusal(defs)
    assert str(refused) == (
        "unpublished rows reach assets:\n"
        "  raw_notes -> clean -> topics -> board  (raw text; read published_notes instead)\n"
        'Hint: read the published asset instead; mark assets inside the boundary as raw: tags={"dptext/'
        'raw": ""} (a check: metadata={"dptext/raw": True}, not blocking); assets that raw assets are made from are '
        'raw, unless they are marked tags={"dptext/public": ""}'
    )
    assert refused.exit_code == 4


def test_ways_are_listed_once_each_and_many_are_cut(notes):
    refused = refusal(merged(notes, asset("topics", ["raw_notes"])))
    assert ways(refused) == ["raw_notes -> topics  (raw text; read published_notes instead)"]
    arms = [asset("left", ["published_notes"]), asset("right", ["raw_notes"]), asset("joined", ["left", "right"])]
    refused = refusal(merged(notes, *arms))
    assert [way.partition("  ")[0] for way in ways(refused)] == ["raw_notes -> right -> joined"]
    refused = refusal(merged(notes, *(asset(f"board{number}", ["raw_notes"]) for number in range(7))))
    assert len(ways(refused)) == 7 - 2 + 1
    assert ways(refused)[-1].startswith("and 2 more")


def test_jobs_quarantine_and_materialize_excuse_nothing(notes, policy, tmp_path):
    both = dg.Definitions.merge(notes, orchestration.build_definitions(policy("calls"), partitions=MONTHS))
    assert orchestration.check_lineage(both)
    refused = refusal(merged(both, asset("early", ["staged_calls"])))
    assert ways(refused) == ["staged_calls -> early  (staged rows, judged by no gate; read published_calls instead)"]
    assert "staged_calls -> more_raw" in refusal(merged(both, asset("more_raw", ["staged_calls"], tags=RAW))).message
    jobs = dg.Definitions(jobs=[dg.define_asset_job("the_board", selection=["board"])])
    defs = dg.Definitions.merge(merged(notes, asset("clean", ["raw_notes"]), asset("board", ["clean"])), jobs)
    assert "raw_notes -> clean -> board" in refusal(defs).message
    with pytest.raises(PolicyError, match="a job knows no asset further up"):
        orchestration.check_lineage(defs.resolve_job_def("the_board"))
    leak = asset("leak", ["raw_notes"], partitions_def=dg.StaticPartitionsDefinition(MONTHS))
    with pytest.raises(GateError, match="raw_notes -> leak"):
        orchestration.materialize(policy("notes"), partitions=MONTHS, also=[leak], home=tmp_path)
    assert not list(tmp_path.iterdir())
    upstream = [asset("dump", []), asset("loaded", ["dump"]), asset("board", ["dump"])]
    made = orchestration.build_definitions(policy("notes"), partitions=MONTHS)
    spec = dg.AssetSpec("raw_notes", deps=["loaded"], tags={"dptext/raw": "notes"})
    steps = [item for item in made.resolve_asset_graph().assets_defs if item.is_executable]
    assert "dump -> board" in refusal([spec, *steps, *upstream]).message


def test_steps_of_several_assets_and_their_checks_read_all_that_the_step_reads(notes):
    @dg.multi_asset(specs=[dg.AssetSpec("counts", deps=["raw_notes"]), dg.AssetSpec("model")], can_subset=True)
    def both(): ...

    refused = refusal(merged(notes, both, asset("board", ["model"])))
    assert [way.partition("  ")[0] for way in ways(refused)] == ["raw_notes -> counts", "raw_notes -> model -> board"]
    specs = [dg.AssetSpec("clean", deps=["raw_notes"], tags=RAW), dg.AssetSpec("counts", tags=PUBLIC)]

    @dg.multi_asset(specs=specs, check_specs=[dg.AssetCheckSpec("fits", asset="counts")])
    def both(): ...

    with pytest.raises(GateError, match=r"-> check fits of counts "):
        orchestration.check_lineage(merged(notes, both))


def test_parameters_graphs_and_outside_assets_count_as_dependencies(notes):
    @dg.asset
    def by_parameter(raw_notes): ...

    @dg.op
    def count(raw_notes): ...

    @dg.graph_asset
    def by_graph(raw_notes):
        return count(raw_notes)

    outside = dg.AssetSpec("dashboard", deps=["raw_notes"])
    refused = refusal(merged(notes, by_parameter, by_graph, outside))
    ends = [way.partition("  ")[0] for way in ways(refused)]
    assert ends == [f"raw_notes -> {name}" for name in ("by_graph", "by_parameter", "dashboard")]


def test_marks_count_on_raw_and_public_assets_and_on_no_other_step(notes):
    source = dg.SourceAsset("dump", tags=RAW)
    clean = asset("clean", ["dump"], metadata={"dptext/raw": True})
    assert orchestration.check_lineage(merged(notes, source, clean))
    assert "clean -> board" in refusal([source, clean, asset("board", ["clean"])]).message
    forged = asset("published_copy", ["raw_notes"], tags={"dptext/published": "notes"})
    refused = refusal(merged(notes, forged, asset("board", ["published_copy"])))
    assert "raw_notes -> published_copy -> board" in refused.message
    assert orchestration.check_lineage(merged(notes, *sources_of_the_raw_asset(PUBLIC), asset("board", ["dump"])))
    lent = asset("words", ["raw_notes"], tags=PUBLIC)
    assert "raw_notes -> words -> board" in refusal(merged(notes, lent, asset("board", ["words"]))).message
    joined = asset("joined", ["raw_notes", "published_notes"], tags=RAW)
    assert orchestration.check_lineage(merged(notes, joined, asset("board", ["published_notes"])))


def test_assets_of_another_location_are_named_and_what_has_none_is_refused(notes):
    defs = [asset("board", ["their_dump"])]
    assert orchestration.check_lineage(defs) is defs
    assert "their_dump -> board" in refusal(defs, raw=["their_dump"]).message
    with pytest.raises(PolicyError, match="no asset is called nothing"):
        orchestration.check_lineage(defs, raw=["nothing"])
    with pytest.raises(PolicyError, match="a int has no asset graph"):
        orchestration.check_lineage(3)


def test_checks_that_read_raw_text_say_so_and_never_block(notes):
    for judged in (
        check("same", "raw_notes", also=["published_notes"]),
        check("same", "raw_notes", also=["staged_notes"], blocking=True),
        check("same", "published_notes", also=["raw_notes"]),
        check("same", "published_notes", also=["raw_notes"], blocking=True),
        check("early", "staged_notes"),
    ):
        assert "check " in refusal(merged(notes, checks=[judged])).message
    inside = {"metadata": {"dptext/raw": True}}
    assert orchestration.check_lineage(
        merged(notes, checks=[check("rows", "raw_notes", **inside), check("c", "staged_notes", **inside)])
    )
    refused = refusal(
        merged(notes, checks=[check("same", "published_notes", also=["raw_notes"], blocking=True, **inside)])
    )
    assert ways(refused) == [
        "raw_notes -> check same of published_notes  (raw text; a check that reads it must not block)"
    ]


def test_a_check_of_a_raw_asset_that_reads_raw_assets_alone_may_block(notes):
    """It decides whether a run starts, before anything is drawn, and publishes nothing."""
    dump = asset("dump", [], tags=RAW)
    judged = [check("rows", "raw_notes", blocking=True), check("same", "raw_notes", also=["dump"], blocking=True)]
    assert orchestration.check_lineage(merged(notes, dump, checks=judged))
    inside = asset(
        "clean", ["raw_notes"], check_specs=[dg.AssetCheckSpec("fits", asset="clean", blocking=True)], tags=RAW
    )
    assert orchestration.check_lineage(merged(notes, inside))


def sources_of_the_raw_asset(tags=None):
    """The raw asset of the policy is made by a step of the project's own, two steps below a dump."""
    return [asset("dump", [], tags=tags), asset("joined", ["dump"]), asset("raw_copy", ["joined"], tags=RAW)]


@pytest.mark.parametrize("read", ["dump", "joined"])
def test_what_a_raw_asset_is_made_from_is_raw(notes, read):
    with pytest.raises(GateError, match=f"{read} -> board"):
        orchestration.check_lineage(merged(notes, *sources_of_the_raw_asset(), asset("board", [read])))


@pytest.mark.parametrize("can_subset", [False, True])
@pytest.mark.parametrize("deps", [[], ["dump"]])
def test_what_one_step_makes_with_a_raw_asset_is_raw(notes, can_subset, deps):
    def step(**second):
        specs = [dg.AssetSpec("raw_copy", deps=deps, tags=RAW), dg.AssetSpec("twin", **second)]

        @dg.multi_asset(specs=specs, can_subset=can_subset)
        def both(): ...

        return both

    assert "twin -> board" in refusal(merged(notes, step(), asset("board", ["twin"]))).message
    if not deps:
        assert orchestration.check_lineage(merged(notes, step(tags=PUBLIC), asset("board", ["twin"])))
