"""Bad input for runs, and the amounts that a refused run spent."""

import json
import subprocess

import pytest


def refused(job, kind, *said, code=5, **changes):
    """Run and expect a refusal that loses nothing."""
    with pytest.raises(kind) as caught:
        job.run(**changes)
    error = caught.value
    assert error.exit_code == code
    assert error.hint
    assert error.__cause__ is None
    assert error.__context__ is None
    for words in said:
        assert words in str(error)
    assert "zzqsentinelqzz" not in str(error)
    assert "r00003" not in str(error)
    assert spent(job) == 0
    assert not (job.folder / "published.manifest.json").exists()


def spent(job):
    if not (job.folder / "ledger.db").exists():
        return 0
    with job.ledger() as ledger:
        return sum(row["records"] - row["aborted"] for row in ledger.reports.show())


CHILD = """
import json, os, resource, signal, sys
from dptext_etl import Policy, run
from dptext_etl.errors import DPTextError
def full(step):
    def checkpoint(name):
        if name == step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
    return checkpoint
try:
    policy = Policy.parse(json.loads(sys.argv[1]))
    {}
except DPTextError as error:
    print(type(error).__name__, error.exit_code, error)
"""


def child(warm, job, code):
    """Run code over the policy of a job in a separate process."""
    values = json.dumps(job.policy().model_dump(mode="json", by_alias=True))
    command = [*warm, "-c", CHILD.replace("{}", code), values]
    return subprocess.run(command, capture_output=True, text=True, check=False)
