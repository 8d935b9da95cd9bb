"""The dashboard and the alert rules under deploy/ ask for metrics and labels that exist."""

import json
import re
from pathlib import Path

import yaml

from dptext_etl.telemetry import METRICS

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((ROOT / "deploy" / "grafana" / "alerts.yaml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
ENDS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_seconds_bucket", "_seconds_sum", "_seconds_count")}
SECONDS = {("gauge", "s"): "_seconds"}
"""Prometheus adds the unit of a gauge, too."""
NAMES = {
    f"{name.replace('.', '_')}{SECONDS.get((kind, unit), '')}{end}"
    for name, (kind, unit, _) in METRICS.items()
    for end in ENDS[kind]
}
"""The names that Prometheus gives to the metrics: dots become underscores, and units and kinds their endings."""
ROW = re.compile(r"^\| `(dptext\.[\w.]+)` \| (\w+) \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)
LABELS = {
    name.replace(".", "_"): set(re.findall(r"`(\w+)`", attributes)) for name, _, _, attributes in ROW.findall(PAGE)
}
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
QUERIES += [DASHBOARD["templating"]["list"][1]["definition"]]
QUERIES += [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]


def asked(query):
    return re.findall(r"\b(dptext_\w+)(?:\{([^}]*)\})?", query)


def test_the_page_and_the_dashboard_show_every_metric_but_draws():
    rows = {name: (kind, unit.strip().strip("`")) for name, kind, unit, _ in ROW.findall(PAGE)}
    assert rows == {name: (metric.kind, metric.unit) for name, metric in METRICS.items()}
    assert {metric.unit for metric in METRICS.values() if metric.kind == "histogram"} == {"s"}
    shown = {name for query in QUERIES for name, _ in asked(query)}
    missing = {name for name in METRICS if not any(item.startswith(name.replace(".", "_")) for item in shown)}
    assert missing == {"dptext.draws"}


def test_every_query_asks_for_metrics_and_labels_that_exist():
    for query in QUERIES:
        assert asked(query)
        for name, selected in asked(query):
            assert name in NAMES
            base = max((item for item in LABELS if name.startswith(item)), key=len)
            assert set(re.findall(r"(\w+)=", selected)) <= LABELS[base]


def test_the_dashboard_has_the_shape_that_grafana_imports():
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= DASHBOARD.keys()
    assert "id" not in DASHBOARD  # Grafana gives it
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["type"] in {"timeseries", "table"}
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_rules_cover_caps_gates_and_frozen_ledgers():
    rules = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
    assert set(rules) == {
        "DptextCapNearlyReached", "DptextCapReached", "DptextGateFired", "DptextLedgerFrozen",
        "DptextLedgerNotVerified",
    }  # fmt: skip
    for rule in rules.values():
        assert rule.keys() == {"alert", "expr", "labels", "annotations"}
        assert rule["annotations"].keys() == {"summary", "description"}
        by = re.search(r"by \(([^)]*)\)", rule["expr"])[1].split(", ")
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= set(by)
