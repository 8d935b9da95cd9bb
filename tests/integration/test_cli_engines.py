"""`dptext run --engine NAME`: an engine of another package runs a policy; its own start and end surround the run."""

import json
from importlib.metadata import EntryPoint

from typer.testing import CliRunner

from dptext_etl import extensions
from dptext_etl.cli.app import app

BOUNDED = """
from contextlib import contextmanager
from dptext_etl.engines import LocalEngine

class Bounded(LocalEngine):
    @classmethod
    @contextmanager
    def started(cls, policy, partition):
        print(f"started for {policy.dataset}, {partition}")
        yield cls()
        print("stopped")
"""


def test_an_engine_of_another_package_runs_a_policy(job, tmp_path, monkeypatch):
    (tmp_path / "bounded_engine.py").write_text(BOUNDED)
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("bounded", "bounded_engine:Bounded", "dptext_etl.engines")
    engines = {**extensions.installed("engines"), "bounded": point}
    monkeypatch.setattr(extensions, "installed", lambda group: engines if group == "engines" else {})
    done = CliRunner().invoke(app, ["run", str(job.write_policy()), "--engine", "bounded", "--json"])
    assert done.exit_code == 0, done.output
    started, stopped, summary = done.stdout.split("\n", 2)
    assert (started, stopped) == (f"started for {job.policy().dataset}, None", "stopped")
    assert json.loads(summary)["version"] == 1
    assert job.run().as_dict()["version"] == 1  # the same rows again, in this process
