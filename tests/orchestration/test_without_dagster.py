"""Without Dagster, what needs it says so in a sentence."""

import subprocess
import sys

NAMES = ("build_definitions", "check_lineage", "materialize", "PolicyComponent")
CODE = f"""
import sys; sys.modules['dagster'] = None
from dptext_etl import orchestration
from dptext_etl.errors import PolicyError
for name in {NAMES}:
    try:
        getattr(orchestration, name)
    except PolicyError as error:
        print(error)
"""


def test_what_needs_dagster_names_the_extra():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    said = "{} needs Dagster, which is not installed\nHint: pip install 'dptext-etl[dagster]'\n"
    assert done.stdout == "".join(said.format(name) for name in NAMES)
