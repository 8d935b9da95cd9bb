"""Tables and configuration on their way to Spark's workers."""

from types import SimpleNamespace

import pytest

from dptext_etl.engines.spark.worker_policy import Location, WorkerPolicy, add_to_session, is_local, ship
from dptext_etl.errors import ArtifactError, PolicyError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.spark import register
from tests.later import later

from .film_queries import FORMS, ROWS, column, probe

later("pyspark", reason="pyspark is not installed (extra: spark)")


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True), ("local[2]", True), ("local[*,3]", True), ("local-cluster[2,1,1024]", True),
        ("spark://h:7077", False), ("yarn", False), ("k8s://local", False), (None, False),
    ],
)  # fmt: skip
def test_the_master_says_whether_workers_share_a_machine(master, local):
    conf = SimpleNamespace(get=lambda name, default: master)
    assert is_local(SimpleNamespace(conf=conf)) == local


class TestShipping:
    def carried(self, policy, location):
        return WorkerPolicy.of(policy, {"table": location})

    def test_by_uri(self, films, policy, expected, tmp_path):
        located = ship(films, policy.mechanism.artifacts(), f"file://{tmp_path}/tables")["table"]
        assert located.uri == f"file://{tmp_path}/tables/{located.name}"
        elsewhere = located.model_copy(update={"path": str(tmp_path / "not-here")})
        assert elsewhere.find().sha256 == policy.mechanism.table.sha256
        register(films, "private_review", policy, form=FORMS[0], artifacts=str(tmp_path / "more"))
        assert column(films, "SELECT private_review(review, id) FROM films ORDER BY n") == expected
        assert [path.name for path in (tmp_path / "more").iterdir()] == [located.name]

    def test_by_the_session_files(self, films, policy, expected, tmp_path):
        table = policy.mechanism.table
        name = f"dptext-{table.sha256}.safetensors"
        add_to_session(films, table, name)
        add_to_session(films, table, name)
        located = Location(sha256=table.sha256, name=name, path=str(tmp_path / "not-here"))
        films.udf.register("look", probe(self.carried(policy, located).written()))
        assert len(column(films, "SELECT look(id) FROM films")) == len(ROWS)

    def test_what_is_nowhere_or_has_another_hash_is_refused_and_not_kept(self, policy, tmp_path):
        (tmp_path / "table").write_bytes(b"something else")
        table, here, sha256 = str(tmp_path / "table"), f"file://{tmp_path}/table", policy.mechanism.table.sha256
        for located, said in (
            (Location(sha256=sha256, name="table", path=table), "its hash differs"),
            (Location(sha256="ab" * 32, name="none", path="/none"), r"did not reach this worker(.|\n)*artifacts="),
            (Location(sha256="cd" * 32, name="broken", path="/none", uri=here), "its hash differs"),
        ):
            for _ in range(2):
                with pytest.raises(ArtifactError, match=said):
                    located.find()

    def test_another_configuration_is_refused(self, films, policy):
        carried = WorkerPolicy.of(policy, ship(films, policy.mechanism.artifacts()))
        assert carried.column_policy().mechanism == policy.mechanism
        wrong = carried.mechanism.model_copy(update={"cfg": "00" * 32})
        with pytest.raises(PolicyError, match=r"another hash here(.|\n)*same version"):
            carried.model_copy(update={"mechanism": wrong}).column_policy()

    def test_workers_build_nothing(self, films, policy, monkeypatch):
        carried = WorkerPolicy.of(policy, ship(films, policy.mechanism.artifacts()))

        def build(*_):
            raise AssertionError

        monkeypatch.setattr(CusText, "parts", build)
        monkeypatch.setattr(CusText, "table_description", build)
        assert carried.column_policy().mechanism.cfg() == policy.mechanism.cfg()
