"""Without Dagster, what needs it says so in a sentence."""

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['dagster'] = None\n"


@pytest.mark.parametrize("name", ["build_definitions", "check_lineage", "materialize", "PolicyComponent"])
def test_what_needs_dagster_names_the_extra(name):
    code = f"""{WITHOUT}
from dptext_etl.errors import PolicyError
try:
    from dptext_etl.orchestration import {name}
except PolicyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first = f"{name} needs Dagster, which is not installed"
    assert done.stdout == f"{first}\nHint: pip install 'dptext-etl[dagster]'\n"
