"""The recipes under deploy/schedule repeat a run if its exit code says that this can help, and only then."""

import configparser
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dptext_etl.errors import EXIT_CODES, TRANSIENT

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "schedule"
REFUSALS = set(EXIT_CODES) - TRANSIENT - {0, 130}


def numbers(text):
    return {int(number) for number in re.findall(r"\d+", text)}


def test_the_page_and_the_service_sort_all_exit_codes():
    page = (ROOT / "docs" / "dagster.md").read_text()
    rows = [numbers(cell) for cell in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)]
    assert rows == [{0}, TRANSIENT, REFUSALS, {130}]
    line = (FOLDER / "crontab").read_text().splitlines()[-1]
    assert line in page
    service, timer = (configparser.ConfigParser(strict=False) for _ in range(2))
    for one in (service, timer):
        one.optionxform = str
    service.read(FOLDER / "dptext.service")
    timer.read(FOLDER / "dptext.timer")
    assert numbers(service["Service"]["RestartForceExitStatus"]) == TRANSIENT
    assert numbers(service["Service"]["RestartPreventExitStatus"]) == REFUSALS
    assert (service["Service"]["Type"], service["Unit"]["StartLimitBurst"]) == ("oneshot", "4")
    assert "OnCalendar" in timer["Timer"]


@pytest.mark.parametrize("code", sorted(EXIT_CODES))
def test_the_script_repeats_a_command(tmp_path, code):
    for name, body in {"dptext": f"echo run >> log; exit {code}", "sleep": 'echo "sleep $1" >> log'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run([FOLDER / "retry", "dptext"], cwd=tmp_path, env={"PATH": path}, check=False)
    assert done.returncode == code
    waits = ["sleep 60", "run", "sleep 600", "run", "sleep 3600", "run"] if code in TRANSIENT else []
    assert (tmp_path / "log").read_text().splitlines() == ["run", *waits]


@pytest.mark.parametrize("code", sorted(EXIT_CODES))
def test_the_task_of_airflow_fails_for_good_where_a_retry_is_refused(monkeypatch, code):
    class RetryError(Exception):
        pass

    class FailError(RetryError):
        pass

    made = {}

    def task(**settings):
        return lambda function: made.update(settings, run=function) or (lambda: None)

    def dag(**settings):
        return lambda function: function

    exceptions = SimpleNamespace(AirflowException=RetryError, AirflowFailException=FailError)
    for name, module in {"": None, ".exceptions": exceptions, ".sdk": SimpleNamespace(dag=dag, task=task)}.items():
        monkeypatch.setitem(sys.modules, f"airflow{name}", module)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=code))
    runpy.run_path(str(FOLDER / "airflow_dag.py"))
    assert made["retries"] == 3
    if code == 0:
        made["run"]()
        return
    with pytest.raises(RetryError) as caught:
        made["run"]()
    assert isinstance(caught.value, FailError) is (code not in TRANSIENT)
