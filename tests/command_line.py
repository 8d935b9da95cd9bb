"""Ask the command line for its facts."""

import json

import pytest
from typer.testing import CliRunner

from dptext_etl.cli.app import app


def dptext(*words, **options):
    return CliRunner().invoke(app, [str(word) for word in words], **options)


def facts(*words):
    done = dptext(*words, "--json")
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def refused(*words):
    """Return the message of a command that refuses its policy or parameters."""
    done = dptext(*words)
    assert done.exit_code == 5, done.output
    return done.stderr


def require_models():
    """Skip where the package of models, or a library that computes them, is not installed."""
    pytest.importorskip("dptext_etl_models")
    pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
