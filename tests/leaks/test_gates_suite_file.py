"""A suite as a file: a checkpoint runs it, it names no place of this machine; importing the classes logs nothing."""

import json
import pickle
from pathlib import Path

import pytest

from dptext_etl import Policy
from dptext_etl.checks.great_expectations import tallies
from dptext_etl.cli.app import app
from dptext_etl.errors import InputError, PolicyError
from tests.later import later

gx = later("great_expectations")
dptx = later("dptext_etl.checks.great_expectations.expectations")


@pytest.fixture
def project(bench, tmp_path, monkeypatch):
    """The folder of someone who has a file context, and the bench's policy as a file."""
    mechanism = json.dumps(bench.policy.columns[0].model_dump()["mechanism"]).replace('": ', '" = ')
    lines = [
        *('dataset = "reviews"', 'release = "r1"', 'id = "id"', 'unit = "record"', 'keep = ["stars"]'),
        *(f'{name} = "{getattr(bench.policy, name)}"' for name in ("source", "sink", "key")),
        f'ledger = {{ url = "{bench.policy.ledger.url}" }}',
        *(
            f'[[column]]\nname = "{name}"\nmechanism = {mechanism}\nallow = ["cluster"]\n'
            for name in ("review", "note")
        ),
    ]
    (tmp_path / "privacy.toml").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checkpoint(context, name):
    context.variables.progress_bars = dptx.ProgressBarsConfig(globally=False, metric_calculations=False)
    asset = context.data_sources.add_or_update_pandas("warehouse").add_dataframe_asset(name)
    data = asset.add_batch_definition_whole_dataframe("whole")
    made = gx.ValidationDefinition(name=name, data=data, suite=context.suites.get(name))
    check = context.validation_definitions.add(made)
    return context.checkpoints.add(gx.Checkpoint(name=name, validation_definitions=[check]))


def test_pages_tell_the_gates_apart(bench):
    said = [item.description for item in dptx.suite_for(bench.policy).expectations]
    assert len(set(said)) == len(said) > 0
    assert "Gate raw_column_absent" in said[0]
    named = dptx.ExpectGateToPass(gate="texts_in_corpus", policy=bench.policy, description="{as} we say")
    assert named.description == "{as} we say"


def test_expectations_accept_a_policy_and_its_path(project):
    path = project / "privacy.toml"
    policy = Policy.load(path)
    assert {item.policy for item in dptx.suite_for(path).expectations} == {tallies.written(policy)}
    for given in (policy, path, str(path), tallies.written(policy)):
        assert dptx.ExpectOnlyReleasedText(policy=given).policy == tallies.written(policy)


def test_executors_need_no_artifact_for_output_words(bench, monkeypatch):
    make = pickle.dumps(tallies.gate(tallies.written(bench.policy), "words_in_output_set"))
    kind = type(bench.policy.columns[0].mechanism)
    monkeypatch.setattr(kind, "output_words", lambda _: pytest.fail("this machine has no vectors"))
    tally = pickle.loads(make)()
    tally.feed(bench.published)
    assert tally.counts() == {"checked": bench.published.height, "outside": 0, "without_set": 0}


@pytest.mark.parametrize("dataset", ["../outside", "/outside", "a/b"])
def test_no_dataset_names_a_file_elsewhere(project, dataset):
    file = project / "privacy.toml"
    file.write_text(file.read_text().replace('dataset = "reviews"', f'dataset = "{dataset}"'))
    with pytest.raises(InputError, match="cannot be the name of a file"):
        dptx.write_suite(file, project / "suites" / "below")
    assert not list(project.rglob("*.json"))
    assert dptx.write_suite(file, project / "suite.json")[1] == project / "suite.json"


def test_a_checkpoint_takes_the_file_and_finds_what_was_changed(project, bench):
    from typer.testing import CliRunner

    done = CliRunner().invoke(app, ["gx-suite", "privacy.toml"])
    assert done.exit_code == 0, done.output
    file = project / "gx" / "expectations" / "reviews.json"
    before = file.read_text()
    assert str(project) not in before
    assert {item["kwargs"]["policy"] for item in json.loads(before)["expectations"]} == {"file:privacy.toml"}
    made = checkpoint(gx.get_context(mode="file", project_root_dir=project), "reviews")
    released = bench.published.to_pandas()
    assert made.run(batch_parameters={"dataframe": released}).success
    released.loc[3, "review"] = bench.sentinel
    failed = made.run(batch_parameters={"dataframe": released})
    assert not failed.success
    (run,) = failed.run_results.values()
    found = {item.expectation_config.kwargs["gate"] for item in run.results if not item.success}
    assert found == {"rows_ledgered", "words_in_output_set"}
    stored = {path: path.read_text() for path in (project / "gx").rglob("*.json")}
    assert not [path for path, text in stored.items() if bench.sentinel in text or bench.policy.ledger.url in text]
    assert dptx.write_suite(Path("privacy.toml"))[1].read_text() == before, "ids follow from names"


def test_the_file_is_read_where_the_checkpoint_runs(project, bench, tmp_path_factory, monkeypatch):
    name, path = dptx.write_suite(Path("privacy.toml"), Path("suite.json"), public=["city"], downstream=True)
    (expectation,) = json.loads(path.read_text())["expectations"]
    assert (name, expectation["kwargs"]["public"]) == ("reviews downstream", '["city"]')
    suite = gx.ExpectationSuite(**json.loads(path.read_text()))
    wider = bench.published.to_pandas().assign(city="Graz")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    (missing,) = dptx.validate_suite(wider, suite).outcomes
    assert missing.errored
    monkeypatch.setenv("DPTEXT_POLICIES", str(project))
    assert dptx.validate_suite(wider, suite).success
    assert not dptx.validate_suite(wider.assign(city="Graz", town="Wien"), suite).success


def test_a_policy_that_is_none_is_refused(tmp_path):
    with pytest.raises(PolicyError):
        dptx.write_suite(tmp_path / "missing.toml")


def test_importing_the_classes_logs_nothing(caplog):
    """The library warns of every renderer that a class has twice, whenever it registers a class."""
    from dptext_etl.checks.great_expectations import expectations

    classes = [item for item in vars(expectations).values() if isinstance(item, type)]
    kind, name = expectations.Expectation, expectations.__name__
    ours = [item for item in classes if issubclass(item, kind) and item.__module__ == name]
    assert len(ours) == 3
    for item in ours:
        item._register_renderer_functions()
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
