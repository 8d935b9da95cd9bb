"""Secrets are in variables: a policy is printed, sent to executors, and shown by Dagster."""

import pytest

from dptext_etl.errors import PolicyError
from dptext_etl.object_stores import CATALOG, Kind, holds_password, is_secret
from dptext_etl.policy import LedgerSpec, Policy

SECRETS = [
    "aws_secret_access_key", "aws_session_token", "AWS_SECRET_ACCESS_KEY", "azure_storage_account_key",
    "azure_client_secret", "azure_storage_sas_key", "google_service_account_key", "token", "bearer_token",
    "aws_sse_customer_key_base64",
]  # fmt: skip
PLAIN = [
    "aws_access_key_id", "aws_endpoint_url", "aws_region", "google_service_account", "google_service_account_path",
    "azure_storage_account_name", "aws_allow_http", "max_retries",
]  # fmt: skip


def policy(**changes):
    values = {
        "dataset": "d",
        "release": "1",
        "source": "raw.parquet",
        "sink": "s3://bucket/out",
        "staging": "staging",
        "id": "id",
        "unit": "record",
        "key": "env:DPTEXT_SECRET",
        "ledger": {"url": "ledger.db"},
        "column": [{"name": "text", "mechanism": {"name": "custext", "epsilon": 1.0}, "allow": ["cluster"]}],
    }
    return Policy.parse({**values, **changes})


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_option_is_named_by_its_variable(name):
    assert policy(storage_options={name: "env:THE_SECRET"})
    with pytest.raises(PolicyError, match="is a secret") as caught:
        policy(storage_options={name: "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name, kind in CATALOG.items() if kind is Kind.SECRET])
def test_a_secret_property_of_a_catalog_is_named_by_its_variable(name):
    table = {"format": "iceberg", "name": "a.b"}
    made = policy(table={**table, "catalog": {"type": "glue", name: "env:THE_SECRET"}})
    assert made.table.catalog[name] == "env:THE_SECRET"
    with pytest.raises(PolicyError, match="is a secret") as caught:
        policy(table={**table, "catalog": {"type": "glue", name: "hunter2"}})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("entry", ["storage_options", "catalog", "tags"])
@pytest.mark.parametrize(
    "url", ["http://me:hunter2@host:1", "https://host/?sig=hunter2", "https://host/?api_key=hunter2"]
)
def test_no_option_is_a_url_with_a_password(entry, url):
    for name in {"storage_options": ["proxy_url", "user_agent"], "catalog": ["s3.proxy-uri", "uri"], "tags": ["a"]}[
        entry
    ]:
        changes = {
            "storage_options": {"storage_options": {name: url}},
            "catalog": {"table": {"format": "iceberg", "name": "a.b", "catalog": {"type": "rest", name: url}}},
            "tags": {"dagster": {"tags": {name: url}}},
        }[entry]
        with pytest.raises(PolicyError, match=r"holds a (password|secret)|is a secret") as caught:
            policy(**changes)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "gcs.oauth2.token", "adls.connection-string", "header.Authorization", "aws_sse_customer_key_base64", "api-key",
        "encryption_key", "sig", "X-Amz-Signature", "x-amz-security-token", "accessToken", "clientSecret", "privateKey",
    ],
)  # fmt: skip
def test_names_of_secrets(name):
    assert is_secret(name)
    assert holds_password(f"https://host/x?a=b&{name}=hunter2")


@pytest.mark.parametrize(
    "name", ["gcs.oauth2.token-expires-at", "adls.account-name", "s3.sse-kms-key-id", "page", "id"]
)
def test_names_of_other_options(name):
    assert not is_secret(name)


@pytest.mark.parametrize("name", PLAIN)
def test_other_options_are_written_out(name):
    assert policy(storage_options={name: "1"}).storage_options == {name: "1"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host/db",
        "postgresql://me@host/db?password=hunter2",
        "postgresql://host/db?sslmode=require&sslpassword=hunter2",
    ],
)
def test_a_ledger_url_holds_no_password(url):
    with pytest.raises(ValueError, match="holds a password") as caught:
        LedgerSpec(url=url)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(PolicyError, match="holds a password"):
        policy(ledger={"url": url})


@pytest.mark.parametrize("place", ["source", "sink", "staging"])
def test_a_place_holds_no_password(place):
    with pytest.raises(PolicyError, match="holds a password"):
        policy(**{place: "s3://id:hunter2@bucket/raw.parquet"})


@pytest.mark.parametrize("url", ["env:LEDGER_SECRET_URL", "postgresql://me@host/db?sslmode=require", "sqlite:///l.db"])
def test_other_urls_are_fine(url):
    assert LedgerSpec(url=url).url == url
