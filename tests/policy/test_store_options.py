"""A policy from someone else names no code, no secret, and no host that the environment does not allow."""

import pytest

from dptext_etl import object_stores
from dptext_etl.errors import InputError, LedgerError, PolicyError
from dptext_etl.ledger.storage.store import resolve_url
from dptext_etl.object_stores import CATALOG, require_no_code
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.planning import contacted

from .test_secrets import policy

ICEBERG = {"format": "iceberg", "name": "a.b"}
HEX = "ab" * 32


def cataloged(**catalog):
    return policy(table={**ICEBERG, "catalog": {"type": "rest", "uri": "https://catalog/v1", **catalog}})


@pytest.mark.parametrize(
    "name",
    [
        "py-catalog-impl", "PY-CATALOG-IMPL", "py_catalog_impl", "py-io-impl", "auth", "auth.type", "auth.impl",
        "auth.custom.impl", "rest.signer", "rest.signer.impl", "s3.signer", "s3.signer.uri", "s3.signer.endpoint",
        "s3.retry-strategy-impl", "gcs.session-kwargs", "s3.profile-name", "client.profile-name", "ssl",
        "botocore_session", "echo", "write.py-location-provider.impl", "S3.endpoint", "s3_endpoint", "header.X",
    ],
)  # fmt: skip
def test_a_catalog_has_listed_properties_only(name):
    for value in ("os.system", "env:SOME_VARIABLE"):
        with pytest.raises(PolicyError, match="not an allowed option") as caught:
            cataloged(**{name: value})
        assert value not in str(caught.value)


def test_no_listed_property_names_code():
    assert not [name for name in CATALOG if "impl" in name or name.startswith(("py-", "auth", "rest.signer"))]


@pytest.mark.parametrize("name", ["header.X-Iceberg-Access-Delegation", "header.x-iceberg-access-delegation"])
def test_names_of_headers_have_no_case(name):
    assert cataloged(**{name: "vended-credentials"})
    with pytest.raises(PolicyError, match=r"header\.Authorization is a secret"):
        cataloged(**{"header.Authorization": "Bearer x"})


@pytest.mark.parametrize("kind", ["in-memory", "bigquery", "custom", "env:KIND", "SQL", "__import__('os')"])
def test_a_catalog_is_of_a_listed_type(kind):
    with pytest.raises(PolicyError, match=r"the type of a catalog|holds no credential|other characters"):
        cataloged(type=kind)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://host/db?host=evil", "mssql+pyodbc:///?odbc_connect=DRIVER=/tmp/x.so", "postgresql+pg8000://host/db",
        "sqlite+pysqlcipher:///x", "sqlite:///x?plugin=y", "http://good\\@evil/", "http://good@evil/", "ftp://host/",
        "http://good\n.evil/", "no address",
    ],
)  # fmt: skip
def test_a_catalog_has_a_plain_address(uri, monkeypatch):
    with pytest.raises(PolicyError, match="uri is not the address of a catalog"):
        cataloged(uri=uri)
    monkeypatch.setenv("CATALOG_URI", uri)
    with pytest.raises(PolicyError, match="holds no address of a catalog") as caught:
        object_stores.resolved({"uri": "env:CATALOG_URI"}, CATALOG)
    assert "evil" not in str(caught.value)


def test_nested_tables_are_no_properties():
    with pytest.raises(PolicyError, match="must be a string"):
        cataloged(auth={"type": "custom", "impl": "os.system"})


@pytest.mark.parametrize(
    "name",
    [
        "aws_profile", "use_azure_cli", "azure_use_azure_cli", "azure_use_emulator", "aws_metadata_endpoint",
        "aws_container_credentials_full_uri", "aws_container_authorization_token_file", "aws_web_identity_token_file",
        "azure_federated_token_file", "azure_authority_host", "azure_msi_endpoint", "aws_sts_endpoint",
        "aws_s3_locking_provider", "aws_bucket", "default_headers", "proxy_ca_certificate", "root_certificate",
        "made_up", "max_aws_retries",
    ],
)  # fmt: skip
def test_a_store_has_listed_options_only(name):
    with pytest.raises(PolicyError, match="not an allowed option"):
        policy(storage_options={name: "1"})


@pytest.mark.parametrize(
    "name", ["user_agent", "aws_endpoint_url", "proxy_url", "aws_region", "max_retries", "allow_http"]
)
def test_only_credentials_come_from_variables(name):
    with pytest.raises(PolicyError, match="holds no credential"):
        policy(storage_options={name: "env:OTHER"})


@pytest.mark.parametrize("value", ["evil.example/", "x@evil", "a b", "a#b", "x/../y"])
@pytest.mark.parametrize("name", ["aws_region", "azure_storage_account_name", "azure_tenant_id"])
def test_what_becomes_part_of_a_host_is_one_word(name, value):
    with pytest.raises(PolicyError, match="other characters"):
        policy(storage_options={name: value})


@pytest.mark.parametrize("option", ["aws_access_key_id", "aws_secret_access_key", "azure_storage_token"])
@pytest.mark.parametrize(
    "changes",
    [
        {"key": "env:HELD_SECRET"},
        {"ledger": {"url": "ledger.db", "id_key": "env:HELD_SECRET"}},
        {"ledger": {"url": "env:HELD_SECRET"}},
    ],
)
def test_no_option_names_the_variable_of_a_key_or_the_ledger(option, changes):
    with pytest.raises(PolicyError, match="names a variable that holds the noise key"):
        policy(storage_options={option: "env:HELD_SECRET"}, **changes)
    catalog = {"type": "glue", "s3.secret-access-key": "env:HELD_SECRET"}
    with pytest.raises(PolicyError, match="names a variable that holds the noise key"):
        policy(table={**ICEBERG, "catalog": catalog}, **changes)


@pytest.mark.parametrize("spelled", [HEX, HEX.upper(), f" {HEX}\n"])
def test_no_option_names_another_variable_of_the_same_value(tmp_path, monkeypatch, spelled):
    monkeypatch.setenv("COPY", spelled)
    monkeypatch.setenv("NOISE_SECRET", HEX)
    (tmp_path / "noise.key").write_text(HEX)
    (tmp_path / "noise.key").chmod(0o600)
    (tmp_path / "ledger.db.id.key").write_text(HEX)
    (tmp_path / "ledger.db.id.key").chmod(0o600)
    other = {"key": "env:SOME_SECRET", "ledger": {"url": str(tmp_path / "other.db")}}
    options = {"storage_options": {"aws_secret_access_key": "env:COPY"}}
    assert policy(**options, **other), "the keys of some stores look like ours"
    for changes in (
        {"key": "env:NOISE_SECRET"},
        {"key": f"file:{tmp_path}/noise.key"},
        {"ledger": {"url": "x.db", "id_key": f"file:{tmp_path}/noise.key"}},
        {"ledger": {"url": f"sqlite:///{tmp_path}/ledger.db"}},
    ):
        with pytest.raises(PolicyError, match="names a variable that holds the noise key"):
            policy(**options, **(other | changes))


def test_no_option_names_a_variable_with_the_url_of_the_ledger(monkeypatch):
    monkeypatch.setenv("COPY", "postgresql://u:p@host/db")
    monkeypatch.setenv("LEDGER_SECRET_URL", "postgresql://u:p@host/db")
    with pytest.raises(PolicyError, match="URL of the ledger"):
        policy(storage_options={"azure_storage_token": "env:COPY"}, ledger={"url": "env:LEDGER_SECRET_URL"})


@pytest.mark.parametrize("name", ["aws_access_key_id", "azure_storage_token", "azure_storage_sas_token"])
def test_a_credential_that_is_sent_is_no_key_of_another_release(monkeypatch, name):
    monkeypatch.setenv("OTHER", HEX)
    with pytest.raises(PolicyError, match="64 hex digits") as caught:
        Layout.of(policy(storage_options={name: "env:OTHER"}))
    assert HEX not in str(caught.value)


def test_a_sas_token_has_a_signature(monkeypatch):
    monkeypatch.setenv("OTHER", "ghp_token-of-another-service")
    with pytest.raises(PolicyError, match="no signature of Azure"):
        Layout.of(policy(storage_options={"azure_storage_sas_token": "env:OTHER"}))


URLS = [
    {"storage_options": {"aws_endpoint_url": "http://store.example:9000"}},
    {"storage_options": {"aws_endpoint": "http://store.example:9000/x"}},
    {"storage_options": {"AWS_ENDPOINT_URL": "http://Store.Example:9000"}},
    {"storage_options": {"endpoint": "store.example:9000"}},
    {"storage_options": {"proxy_url": "http://store.example:9000"}},
    {"storage_options": {"azure_endpoint": "https://store.example:9000"}},
    {"source": "http://store.example:9000/raw.parquet"},
    {"sink": "http://store.example:9000/out"},
    {"staging": "https://store.example:9000/staging"},
]


@pytest.mark.parametrize("changes", URLS)
def test_a_host_is_one_that_the_environment_allows(monkeypatch, changes):
    made = policy(**changes)
    for allowed in (
        None,
        "",
        "example",
        "evil.example",
        "xstore.example:9000",
        "store.example:9",
        "store.example:90000",
    ):
        monkeypatch.delenv("DPTEXT_ENDPOINTS") if allowed is None else monkeypatch.setenv("DPTEXT_ENDPOINTS", allowed)
        with pytest.raises(PolicyError, match=r"names the host store\.example:9000"):
            Layout.of(made)
    for allowed in ("store.example", "store.example:9000", "a, STORE.example:9000"):
        monkeypatch.setenv("DPTEXT_ENDPOINTS", allowed)
        assert Layout.of(made)


@pytest.mark.parametrize(
    "place",
    [
        "abfss://c@evil.example/x", "abfss://c@account.dfs.core.windows.net.evil.example/x", "http://evil.example",
        "wasbs://c@evil.example/x", "s3://bucket@evil.example/x", "hdfs://evil.example:8020/x", "HTTPS://evil.example/x",
        "uc://evil.example/x", "http://evil.example\\@127.0.0.1/x", "http://127.0.0.1@evil.example/x",
    ],
)  # fmt: skip
def test_a_place_is_in_a_known_store_or_on_an_allowed_host(monkeypatch, place):
    monkeypatch.setenv("DPTEXT_ENDPOINTS", "127.0.0.1")
    for entry in ("source", "sink"):
        with pytest.raises(PolicyError, match=r"names the host (evil\.example|\(none|account\.dfs)"):
            Layout.of(policy(**{entry: place}, storage_options={}))


@pytest.mark.parametrize(
    "place", ["abfss://c@account.dfs.core.windows.net/x", "az://c/x", "s3://b/x@y.csv", "gs://b", "x@y"]
)
def test_the_usual_stores_need_no_consent(monkeypatch, place):
    monkeypatch.setenv("DPTEXT_ENDPOINTS", "")
    assert Layout.of(policy(sink=place))


@pytest.mark.parametrize(
    "catalog",
    [
        {"uri": "https://evil.example/v1"}, {"s3.endpoint": "http://evil.example"}, {"s3.proxy-uri": "http://evil.example"},
        {"oauth2-server-uri": "https://evil.example"}, {"adls.account-host": "evil.example"},
        {"gcs.service.host": "https://evil.example"}, {"glue.endpoint": "https://evil.example"},
    ],
)  # fmt: skip
def test_a_catalog_leads_to_allowed_hosts(monkeypatch, catalog):
    monkeypatch.setenv("DPTEXT_ENDPOINTS", "catalog")
    with pytest.raises(PolicyError, match=r"names the host evil\.example"):
        object_stores.resolved(cataloged(**catalog).table.catalog, CATALOG)
    monkeypatch.setenv("DPTEXT_ENDPOINTS", "catalog,evil.example")
    assert object_stores.resolved(cataloged(**catalog).table.catalog, CATALOG)


def test_an_account_file_leads_to_allowed_hosts(tmp_path, monkeypatch):
    (tmp_path / "account.json").write_text('{"gcs_base_url": "http://evil.example"}')
    monkeypatch.setenv("DPTEXT_ENDPOINTS", "")
    with pytest.raises(PolicyError, match=r"names the host evil\.example"):
        Layout.of(policy(storage_options={"google_service_account_path": str(tmp_path / "account.json")}))


def test_certificates_are_checked_where_the_store_is_a_known_one():
    with pytest.raises(PolicyError, match="its own endpoint"):
        Layout.of(policy(storage_options={"allow_invalid_certificates": "true"}))


def test_the_ledger_in_a_variable_is_a_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTHER", "hunter2")
    for value in ("hunter2", "/hunter2", "file:hunter2", "https://hunter2"):
        monkeypatch.setenv("OTHER", value)
        with pytest.raises(LedgerError, match="holds something else") as caught:
            resolve_url("env:OTHER")
        assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("OTHER", "sqlite:///ledger.db")
    assert resolve_url("env:OTHER") == "sqlite:///ledger.db"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "more", ["host=evil", "hostaddr=1.2.3.4", "passfile=/etc/passwd", "oauth_issuer=x", "service=x"]
)
def test_the_url_of_a_ledger_names_one_host(more):
    with pytest.raises(PolicyError, match="parameters of another kind"):
        policy(ledger={"url": f"postgresql://host/db?sslmode=require&{more}"})


@pytest.mark.parametrize(
    "tags",
    [
        {"dagster-k8s/config": {"container_config": {"image": "evil"}}},
        {"dagster-k8s/config": {"container_config": {"resources": {}, "command": ["sh"]}}},
        {"dagster-k8s/config": {"containerConfig": {"image": "evil"}}},
        {"dagster-k8s/config": {"pod_spec_config": {"init_containers": []}}},
        {"dagster-k8s/config": {"pod_spec_config": {"nodeSelector": {}}}},
        {"dagster-k8s/config": {"job_spec_config": {"template": {}}}},
        {"dagster-k8s/config": '{"container_config": {"image": "evil"}}'},
        {"dagster-k8s/per_step_config": {}},
        {"dagster/image": "evil"},
        {"ecs/run_task_kwargs": {"overrides": {}}},
        {"ecs/task_overrides": "{}"},
        {"docker/config": "{}"},
        {"team": {"a": "b"}},
        {"dptext/public": ""},
    ],
)
def test_a_tag_names_no_code(tags):
    with pytest.raises(PolicyError, match="not an allowed tag"):
        policy(dagster={"tags": tags})


def test_tags_choose_labels_resources_and_nodes():
    pod = {"container_config": {"resources": {"limits": {"memory": "8Gi"}}}, "pod_spec_config": {"tolerations": []}}
    tags = {"team": "x", "dagster/priority": "3", "ecs/cpu": "256", "dagster-k8s/config": pod}
    assert policy(dagster={"tags": tags}).dagster.tags == tags


@pytest.mark.parametrize("name", ["py-io-impl", "write.py-location-provider.impl", "s3.retry-strategy-impl", "py-x"])
def test_a_table_names_no_code(name):
    with pytest.raises(InputError, match="name code"):
        require_no_code({name: "subprocess.Popen", "owner": "x"})
    require_no_code({"owner": "x", "write.metadata.metrics.default": "none", "format-version": "2"})
    require_no_code({name: "pyiceberg.io.fsspec.FsspecFileIO"})


def test_a_plan_lists_the_hosts():
    made = policy(
        source="https://files.example:8443/raw.parquet",
        staging="staging",
        storage_options={"aws_endpoint_url": "http://127.0.0.1:9000", "proxy_url": "http://proxy.example:3128"},
        ledger={"url": "postgresql://me@one.example,two.example/db"},
        table={**ICEBERG, "catalog": {"type": "rest", "uri": "https://catalog/v1"}},
    )
    assert contacted(made) == [
        "source: https://files.example:8443",
        "sink: s3://bucket",
        "storage_options.aws_endpoint_url: 127.0.0.1:9000",
        "storage_options.proxy_url: proxy.example:3128",
        "table.catalog.uri: catalog",
        "ledger.url: one.example,two.example",
    ]
    anchors = {"url": "env:THE_URL", "anchors": "s3://safe/anchors"}
    assert contacted(policy(sink="out", ledger=anchors)) == ["ledger.anchors: s3://safe", "ledger.url: env:THE_URL"]
    assert contacted(policy(sink="out")) == []
