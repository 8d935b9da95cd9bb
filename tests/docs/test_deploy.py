"""The image under deploy/ is built from files and pins of the repository, and does not run as root."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from dptext_etl.ledger import anchor_files

ROOT = Path(__file__).resolve().parents[2]
IMAGE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")


def test_the_image_is_pinned_and_unprivileged_and_has_the_archives_packages():
    pinned = re.search(r"^pyspark==(\S+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert re.findall(r"^ARG SPARK=(\S+)", IMAGE, flags=re.MULTILINE) == [pinned[1]]
    assert "--constraint /tmp/install/constraints.txt" in IMAGE
    users = re.findall(r"^USER (\S+)", IMAGE, flags=re.MULTILINE)
    assert users == ["185"]
    assert IMAGE.index("USER") < IMAGE.index("ENTRYPOINT")
    tried = re.search(r'python3 -c "import (.+)"', IMAGE)
    assert all(find_spec(name) for name in tried[1].split(", "))
    versions = dict(re.findall(r"^ARG (PYTHON|SPARK)=([\d.]+)$", IMAGE, flags=re.MULTILINE))
    bases = re.findall(r"^FROM (\S+)", IMAGE, flags=re.MULTILINE)
    assert len(bases) == 2
    for base in bases:
        image, _, tag = base.partition(":")
        for name, version in versions.items():
            tag = tag.replace(f"${{{name}}}", version)
        assert re.match(r"\d+\.\d+", tag), f"{image} is taken in whatever version there is"
    assert ":latest" not in IMAGE
    copied = re.findall(r"^COPY (?!--from)(.+)$", IMAGE, flags=re.MULTILINE)
    assert copied == ["constraints.txt dist/*.whl /tmp/install/"]
    assert not re.search(r"^ADD ", IMAGE, flags=re.MULTILINE)
    names = re.findall(r"\b([A-Z_]+)=", IMAGE)
    assert not [name for name in names if any(said in name for said in ("SECRET", "KEY", "PASSWORD", "TOKEN"))]
    packed = (ROOT / "deploy" / "pack").read_text(encoding="utf-8")
    for text in (IMAGE, packed):
        assert re.search(r"pip install [^\n]*--constraint", text)
        assert re.search(r'\[\$\{?(EXTRAS|extras)\}?\]\}?" pandas "\$(@|\{others\[@\]\})"', text), (
            "our wheels are given as files"
        )
    assert re.search(r"^ARG EXTRAS=(\S+)", IMAGE, flags=re.MULTILINE)[1] == re.search(r"EXTRAS-(\w+)", packed)[1]


def test_the_values_for_dagsters_chart_name_what_exists():
    """The chart itself is not here: its own keys are as its documentation has them."""
    k8s = pytest.importorskip("dagster_k8s.job", reason="dagster-k8s is not installed (extra: dev)")
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "dagster-values.yaml").read_text(encoding="utf-8"))
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert find_spec(deployment["dagsterApiGrpcArgs"][1])
    assert {item["name"] for item in deployment["env"]} == {anchor_files.VARIABLE, "DPTEXT_ENVIRONMENT"}
    config = values["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    read = k8s.UserDefinedDagsterK8sConfig.from_dict(
        {"container_config": config["containerConfig"], "pod_spec_config": config["podSpecConfig"]}
    )
    assert "nvidia.com/gpu" not in str(read.container_config), "only the staging step asks for a GPU, by its tags"
    assert {volume["name"] for volume in deployment["volumes"]} == {item["name"] for item in deployment["volumeMounts"]}
