"""Ask the command line for its facts."""

import json

from typer.testing import CliRunner

from dptext_etl.cli.app import app


def dptext(*words, **options):
    return CliRunner().invoke(app, [str(word) for word in words], **options)


def facts(*words):
    done = dptext(*words, "--json")
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)
