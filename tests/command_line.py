"""Ask the command line for its facts."""

import json

import pytest
from typer.testing import CliRunner

from dptext_etl.cli.app import app


def dptext(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def facts(*words):
    done = dptext(*words, "--json")
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def require_models():
    """Skip where the package of models, or a library that computes them, is not installed."""
    pytest.importorskip("dptext_etl_models")
    pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
