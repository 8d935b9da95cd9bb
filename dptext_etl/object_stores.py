"""Judge the options of object stores and catalogs, and open stores.

A policy may come from someone else. Its options name no code, and no host that the environment does not allow in
`DPTEXT_ENDPOINTS`. They name variables (`env:NAME`) only for credentials, which libraries send to the store.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from dptext_etl import extensions
from dptext_etl.errors import InputError, PolicyError, seam

REFERENCE = "env:"
ENDPOINTS = "DPTEXT_ENDPOINTS"
"""The variable that lists the hosts that policies may name, as HOST or HOST:PORT, separated by commas."""


class Kind(Enum):
    """The kind of value of an option."""

    SECRET = auto()  # only as "env:NAME"
    IDENTITY = auto()  # the other half of a credential, such as the id of an access key: may be "env:NAME"
    ENDPOINT = auto()  # a URL or host that is contacted
    URI = auto()  # the address of a catalog; may be "env:NAME"
    WORD = auto()  # part of the name of a host, such as a region
    FILE = auto()  # a file with the account of a service
    VALUE = auto()  # numbers, switches, and texts that are contacted, opened, and run nowhere


_REFERENCES = frozenset({Kind.SECRET, Kind.IDENTITY, Kind.URI})  # kinds of options whose values may be "env:NAME"


def _kinds(listed: str) -> dict[str, Kind]:
    lines = (line.partition(":") for line in listed.strip().splitlines())
    return {name: Kind[kind.strip()] for kind, _, names in lines for name in names.split()}


_PREFIX = re.compile(r"\A(?:aws_|azure_storage_|azure_|google_|storage_)")
_STORE = _kinds("""
    SECRET: secret_access_key session_token token bearer_token account_key access_key master_key client_secret
    SECRET: sas_key sas_token service_account_key sse_customer_key_base64
    IDENTITY: access_key_id client_id
    ENDPOINT: endpoint endpoint_url endpoint_url_s3 base_url proxy_url
    WORD: region default_region account_name tenant_id authority_id
    FILE: service_account service_account_path application_credentials
    VALUE: allow_http allow_invalid_certificates connect_timeout timeout user_agent max_retries retry_timeout_ms
    VALUE: retry_init_backoff_ms retry_max_backoff_ms retry_base_multiplier file_cache_ttl skip_signature
    VALUE: virtual_hosted_style_request unsigned_payload checksum_algorithm disable_tagging request_payer s3_express
    VALUE: server_side_encryption sse_kms_key_id sse_bucket_key_enabled conditional_put copy_if_not_exists
    VALUE: s3_allow_unsafe_rename use_fabric_endpoint
""")
"""Options of object stores, without the prefix that names the store."""
CATALOG = _kinds("""
    SECRET: token credential header.authorization hive.ugi ugi gcs.oauth2.token
    SECRET: s3.secret-access-key client.secret-access-key glue.secret-access-key dynamodb.secret-access-key
    SECRET: s3.session-token client.session-token glue.session-token dynamodb.session-token
    SECRET: adls.account-key adls.sas-token adls.connection-string adls.client-secret adls.token
    IDENTITY: s3.access-key-id client.access-key-id glue.access-key-id dynamodb.access-key-id adls.client-id
    ENDPOINT: oauth2-server-uri s3.endpoint s3.proxy-uri glue.endpoint gcs.service.host
    ENDPOINT: adls.account-host adls.blob-storage-authority adls.dfs-storage-authority
    URI: uri
    WORD: name type rest.signing-region rest.signing-name s3.region client.region glue.region glue.id dynamodb.region
    WORD: table-name hive.kerberos-service-name adls.account-name adls.tenant-id gcs.project-id
    VALUE: warehouse prefix scope audience resource header.x-iceberg-access-delegation snapshot-loading-mode
    VALUE: rest-page-size namespace-separator rest.sigv4-enabled pool_pre_ping hive.hive2-compatible
    VALUE: hive.kerberos-authentication lock-check-min-wait-time lock-check-max-wait-time lock-check-retries
    VALUE: s3.anonymous s3.resolve-region s3.connect-timeout s3.request-timeout s3.role-arn s3.role-session-name
    VALUE: s3.force-virtual-addressing s3.server-side-encryption s3.sse-kms-key-id client.role-arn
    VALUE: client.role-session-name glue.skip-archive glue.max-retries glue.retry-mode adls.anon gcs.requester-pays
    VALUE: gcs.oauth2.token-expires-at gcs.default-bucket-location gcs.version-aware
""")
"""Properties of catalogs of Iceberg and of their files. None of them names code."""
CATALOG_TYPES = ("sql", "rest", "glue", "hive", "dynamodb")
_WORD = re.compile(r"[\w.-]*", re.ASCII)
_HOST = r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]+))?"
_ENDPOINT = re.compile(rf"(?:(?:https?|thrift)://)?{_HOST}(?:/[\w./~-]*)?", re.ASCII)
_PLACE = re.compile(rf"{_HOST}(?:/.*)?", re.DOTALL)
_SQL = re.compile(
    rf"sqlite:///[^?]*|postgresql(?:\+psycopg2?)?://(?:[^@/:\s]*(?::[^@/\s]*)?@)?(?:{_HOST})?(?:/[\w.%-]*)?", re.ASCII
)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
KEY_DIGITS = re.compile(r"\s*[0-9a-fA-F]{64}\s*")  # how a key is written in a variable or a file
_SIGNING = re.compile(r"secret[_-]access[_-]key\Z", re.IGNORECASE)
"""The one kind of credential that may look like a key of ours: it signs requests and is never sent."""
_CODE = re.compile(r"^py-|impl$")  # properties of a table by which pyiceberg looks for code
_OWN = ("pyiceberg.io.", "pyiceberg.table.locations.")  # code of pyiceberg itself
_STORES = ("s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss", "wasb", "wasbs", "hf", "file")
"""Schemes of URLs whose hosts follow from the store, unless the URL names one after "@" that is not of Azure."""
_AZURE = re.compile(r"(?is)[\w-]+\.(?:dfs|blob)\.(?:core\.windows\.net|fabric\.microsoft\.com)(?:/.*)?")
_SECRET = re.compile(
    r"secret|passw|pwd$|credentials?$|authorization|connection_?string|bearer|token$|^key$|(^|_)(sas|sig|jwt|auth|ugi)$"
    r"|(account|access|storage|master|sas|encryption|signature|customer|api|private)_?key(_base64)?$|signature$"
)
"""Names of parameters and options whose values are secrets; paths of files and ids of keys are not secrets."""


def is_secret(name: str) -> bool:
    """Return whether an option of this name holds a secret.

    >>> is_secret("aws_secret_access_key"), is_secret("aws_access_key_id"), is_secret("X-Amz-Signature")
    (True, False, True)
    """
    return _SECRET.search(re.sub(r"[-.]", "_", name.lower())) is not None


def holds_password(url: str) -> bool:
    """Return whether a URL holds a password, before its host or among its parameters.

    >>> holds_password("postgresql://u:p@host/db"), holds_password("postgresql://host/db?password=p")
    (True, True)
    >>> holds_password("postgresql://u@host/db?sslmode=require"), holds_password("ledger.db")
    (False, False)
    """
    if "://" not in url:
        return False
    user, at, _ = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")
    names = [name for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True)]
    return (bool(at) and ":" in user) or any(map(is_secret, names))


def variable_of(value: str) -> str | None:
    """Return NAME of "env:NAME", or None for any other value."""
    return value.removeprefix(REFERENCE) if value.startswith(REFERENCE) else None


def kind_of(name: str, kinds: Mapping[str, Kind] | None = None) -> Kind | None:
    """Return the kind of an option, by `kinds` if they are given, else of stores; None if it is not allowed."""
    lower = name.lower()
    if kinds is not None:
        return kinds.get(lower if lower.startswith("header.") else name)  # names of headers have no case
    return _STORE.get(lower) or _STORE.get(_PREFIX.sub("", lower, count=1))


def require_options(options: Mapping[str, str], kinds: Mapping[str, Kind] | None = None) -> None:
    """Refuse an option that is not allowed, a secret that is written out, and a variable that holds no credential."""
    for name, value in options.items():
        kind, variable = kind_of(name, kinds), variable_of(value)
        if kind is None:
            msg = f"{name[:60]!r} is not an allowed option, so that none names code or another host"
            if kinds is None:
                msg += "; clients of stores also read their own variables, such as AWS_ROLE_ARN"
            raise ValueError(f"{msg} (docs/policy.md#what-a-policy-can-do)")
        if variable is not None:
            if kind not in _REFERENCES:
                msg = f'{name} holds no credential, so it cannot be "env:NAME": write its value into the policy'
                raise ValueError(msg)
            if not _VARIABLE.fullmatch(variable):
                raise ValueError(f"{name} names no variable: write env:NAME")
        elif kind is Kind.SECRET or (kind in _REFERENCES and (holds_password(value) or KEY_DIGITS.fullmatch(value))):
            msg = f'{name} is a secret; put it into a variable and name that: {name} = "env:NAME_OF_A_SECRET"'
            raise ValueError(msg)
        elif holds_password(value):
            raise ValueError(f"{name} holds a password, and policies are printed: write the URL without one")
        elif kind is Kind.WORD and not _WORD.fullmatch(value):
            raise ValueError(f'{name} has other characters than letters, digits, ".", "-", and "_"')
        elif kind is Kind.ENDPOINT and not _ENDPOINT.fullmatch(value):
            raise ValueError(f"{name} is not a plain URL: write http(s)://HOST:PORT/PATH")


def require_catalog(catalog: Mapping[str, str]) -> None:
    """Refuse a catalog of another type, and the properties that `require_options` refuses."""
    require_options(catalog, CATALOG)
    kind = catalog.get("type")
    if kind is not None and kind not in CATALOG_TYPES:
        raise ValueError(f"the type of a catalog is one of {', '.join(CATALOG_TYPES)}")
    if (uri := catalog.get("uri")) is not None and variable_of(uri) is None:
        _require_uri(uri)


def _require_uri(uri: str) -> None:
    if not (_SQL if uri.startswith(("sqlite", "postgres")) else _ENDPOINT).fullmatch(uri) or "://" not in uri:
        forms = "sqlite:///PATH, postgresql://HOST/DATABASE, http(s)://HOST/PATH, or thrift://HOST:PORT"
        raise ValueError(f"uri is not the address of a catalog: write {forms}, without parameters")


def hosts(options: Mapping[str, str], kinds: Mapping[str, Kind] | None = None) -> dict[str, str]:
    """Return the URLs and hosts that options name, by option; a variable that is not resolved is left as it is."""
    places = {}
    for name, value in options.items():
        kind = kind_of(name, kinds)
        if kind is Kind.ENDPOINT or (kind is Kind.URI and not value.startswith(("sqlite:", "postgresql:///"))):
            places[name] = value
        elif kind is Kind.FILE:  # an account file of Google Cloud Storage may name a host
            with suppress(OSError, ValueError):  # the library that opens the file refuses it
                content = json.loads(Path(value).read_text("utf-8"))
                if isinstance(content, dict) and "gcs_base_url" in content:
                    places[f"gcs_base_url in the file of {name}"] = str(content["gcs_base_url"])
    return places


def require_value(name: str, value: str, kinds: Mapping[str, Kind] | None = None) -> None:
    """Refuse a value of a variable that cannot be the credential of an option; the message quotes no value."""
    kind = kind_of(name, kinds)
    if kind is Kind.URI:
        try:
            _require_uri(value)
        except ValueError:
            problem = f"the variable that {name} refers to holds no address of a catalog"
        else:
            return
    elif KEY_DIGITS.fullmatch(value) and not _SIGNING.search(name):
        problem = f"the variable that {name} refers to holds 64 hex digits, which may be a key of a release"
    elif re.search(r"sas[_-](token|key)\Z", name.lower()) and "sig=" not in value:
        problem = f"the variable that {name} refers to holds no signature of Azure"
    else:
        return
    raise PolicyError(problem, "name the variable that holds this credential")


def require_no_code(properties: Mapping[str, Any]) -> None:
    """Refuse properties of a table of Iceberg, or from its catalog, by which pyiceberg would import and call code."""
    code = [name for name, value in properties.items() if _CODE.search(name) and not str(value).startswith(_OWN)]
    if code:
        msg = f"the table or its catalog has {len(code)} properties that name code, such as {min(code)[:60]!r}"
        raise InputError(msg, "remove them there, or name another table")


def host_of(url: str) -> str:
    """Return HOST or HOST:PORT of a URL, in small letters; "" if none can be read without doubt."""
    match = _ENDPOINT.fullmatch(url) or _SQL.fullmatch(url)
    return "" if match is None or not match["host"] else _named(match)


def _named(match: re.Match[str]) -> str:
    return (match["host"] if match["port"] is None else f"{match['host']}:{match['port']}").lower()


def require_host(host: str, what: str) -> None:
    """Refuse a host that `DPTEXT_ENDPOINTS` does not list."""
    allowed = os.environ.get(ENDPOINTS, "").lower().replace(",", " ").split()
    if host and (host in allowed or re.sub(r":\d+\Z", "", host) in allowed):
        return
    msg = f"{what} names the host {host or '(none that can be read)'}, which the environment does not allow"
    raise PolicyError(msg, f"if you trust it with the data and credentials of this run: export {ENDPOINTS}={host}")


def require_place(url: str) -> None:
    """Refuse a URL whose host is neither a known store nor one that the environment allows."""
    if holds_password(url):
        raise PolicyError("a URL holds a password, and plans and errors show it", "put credentials into a variable")
    scheme, slashes, rest = url.partition("://")
    container, at, host = rest.rpartition("@")
    if not slashes or (scheme.lower() in _STORES and (not at or "/" in container or _AZURE.fullmatch(host))):
        return
    match = _PLACE.fullmatch(rest if scheme.lower() not in _STORES else host)
    require_host("" if match is None else _named(match), "a place")


EXTRA = "objects"
_PROBE = ".dptext-probe"  # name of an object that is never there. Readers of tables skip names that begin with a dot
_NO_BUCKET = ("<Code>NoSuchBucket</Code>", "<Code>ContainerNotFound</Code>")
_CLIENT = re.compile(
    r"(?:aws_|azure_|google_)?(allow_http|allow_invalid_certificates|connect_timeout|timeout|proxy_url|user_agent)"
)
"""Options of the connection; all stores have them, with a prefix or without."""
_RETRIES = "max_retries"
_POLARS = re.compile(r"retry_.*|file_cache_ttl")  # options that only Polars accepts
_NUMBERS: dict[str, type[int] | type[float]] = {
    "max_retries": int,
    "retry_timeout_ms": int,
    "retry_init_backoff_ms": int,
    "retry_max_backoff_ms": int,
    "retry_base_multiplier": float,
    "file_cache_ttl": int,
}
"""Options of Polars itself, as numbers."""
_TAIL = 1 << 16  # bytes at the end of a Parquet file that are read first: most descriptions of columns fit
_READ_HINT = "is the object store reachable, and may these credentials read there?"


def client(url: str, options: Mapping[str, Any]) -> Any:
    require_place(url)
    if find_spec("obstore") is None:
        msg = "publishing to an object store, and reading globs, text files, or published tables there, needs obstore"
        raise InputError(msg, f"`{extensions.pip_install(EXTRA)}`")
    return _client(url, tuple(options.items()))


@lru_cache(maxsize=16)
def _client(url: str, options: tuple[tuple[str, Any], ...]) -> Any:
    from obstore.store import from_url

    connection = {option[1]: str(value) for name, value in options if (option := _CLIENT.fullmatch(name))}
    config = {
        name: str(value)
        for name, value in options
        if not _CLIENT.fullmatch(name) and name != _RETRIES and not _POLARS.fullmatch(name)
    }
    retries = next(({_RETRIES: int(value)} for name, value in options if name == _RETRIES), None)
    with seam(f"opening the object store {url}", InputError, "is it an s3://, gs:// or az:// URL?"):
        settings: dict[str, Any] = {"config": config, "client_options": connection, "retry_config": retries}
        return from_url(url, **settings)


def matching(pattern: str, options: Mapping[str, Any]) -> list[str]:
    """Return the URLs of the objects that a URL names, which may hold `*`, `**`, `?` and `[…]`, in order."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    if fixed == pattern:
        return [pattern]
    folder = fixed.rpartition("/")[0]
    place, _ = _opened(fixed, options)
    import obstore

    with seam(f"listing the objects of {pattern}", InputError, _READ_HINT):
        urls = [f"{folder}/{item['path']}" for page in obstore.list(place) for item in page]
    wanted = re.compile(expression_of(pattern))
    objects = sorted(url for url in urls if wanted.fullmatch(url))
    if not objects:
        raise InputError(f"the source {pattern} has no objects", "is the pattern right?")
    return objects


def expression_of(pattern: str) -> str:
    """Return a regular expression for a pattern; parts that begin with "." or "_" match only if they are written so.

    A NUL stands for the name of a partition, and stays.
    """
    parts = {"**/": "(?:(?![._])[^/]*/)*", "**": "[^/]*(?:/(?![._])[^/]*)*", "*": "[^/]*", "?": "[^/]", "\0": "\0"}
    expression, before = "", "/"
    for piece in re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|.", pattern, re.DOTALL):
        special = parts.get(piece) or (piece.replace("[!", "[^") if len(piece) > 1 else None)
        expression += "(?![._])" if special and before[-1] == "/" and piece != "**/" else ""
        expression, before = expression + (special or re.escape(piece)), piece
    return expression


def chunks(url: str, options: Mapping[str, Any]) -> Iterator[bytes]:
    """Read an object from its begin to its end, in chunks."""
    place, name = _opened(url, options)
    import obstore

    with seam(f"reading {url}", InputError, _READ_HINT):
        yield from map(bytes, obstore.get(place, name).stream())


def footer_of(url: str, options: Mapping[str, Any]) -> bytes:
    """Return the description of the rows of a Parquet file (`footer`)."""
    with seam(f"reading {url}", InputError, _READ_HINT):
        return footer(*_opened(url, options))


def footer(place: Any, name: str) -> bytes:
    """Return a Parquet file that describes the rows of another one, and holds none; empty if the other one is."""
    import obstore

    size = int(obstore.head(place, name)["size"])
    most, tail = _TAIL, b""
    while len(tail) < min(most, size):
        tail = bytes(obstore.get_range(place, name, start=max(size - most, 0), end=size))
        most = int.from_bytes(tail[-8:-4], "little") + 8
    return tail and b"PAR1" + tail


def _opened(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Open the folder of an object, whose name has the characters of the URL as they are, as Polars reads it."""
    folder, _, name = url.rpartition("/")
    return client(quote(folder, safe=":/@"), options), name


def require_writable(url: str, options: Mapping[str, str]) -> None:
    """Refuse a prefix of a store in which the credentials of a policy cannot write; nothing is written."""
    probe(url, resolved(options))


def probe(url: str, options: Mapping[str, Any]) -> None:
    """Refuse a prefix of a store in which these credentials cannot write; nothing is written.

    The store is asked to replace an object that is not there. It answers that the right to write is missing, or else
    that the object is. A store that ignores the condition writes an empty object, which is deleted.
    """
    place = client(url, options)
    import obstore
    from obstore.exceptions import PreconditionError

    hint = "may these credentials write there, and does the store answer? Nothing was charged"
    missing = False
    with seam(f"checking write access to {url}", InputError, hint):
        try:
            obstore.put(place, _PROBE, b"", mode={"e_tag": '"0"', "version": "1"})
        except (PreconditionError, FileNotFoundError) as error:
            missing = any(code in str(error) for code in _NO_BUCKET)
        else:
            obstore.delete(place, _PROBE)
    if missing:
        raise InputError(f"the bucket of {url} is missing", "create it; nothing was charged")


def resolved(options: Mapping[str, str], kinds: Mapping[str, Kind] | None = None) -> dict[str, Any]:
    """Return options of a store, or of `kinds`, with environment references resolved; never print them.

    Options, values of variables, and hosts that are not allowed are refused.
    """
    try:
        require_options(options, kinds)
    except ValueError as refused:
        raise PolicyError(str(refused), "correct storage_options in the policy") from None
    values: dict[str, str] = {}
    for name, value in options.items():
        variable = variable_of(value)
        if variable is not None and variable not in os.environ:
            raise PolicyError(f"storage option {name!r} refers to {variable}, which is not set", f"export {variable}")
        values[name] = value if variable is None else os.environ[variable]
        if variable is not None:
            require_value(name, values[name], kinds)
    # Refuse options, their variables resolved, that lead to a host that the environment does not allow
    for name, url in hosts(values, kinds).items():
        require_host(host_of(url), name)
    if not any(kind_of(name, kinds) is Kind.ENDPOINT for name in values):
        for name in values:
            if name.lower().endswith("allow_invalid_certificates"):
                raise PolicyError(f"{name} is for a store with its own endpoint", "remove it")
    return {name: _typed(name, value) for name, value in values.items()}


def _typed(name: str, value: str) -> str | float:
    kind = _NUMBERS.get(name)
    try:
        return value if kind is None else kind(value)
    except ValueError:
        problem = f"storage option {name!r} must be a number"
    raise PolicyError(problem, 'write: storage_options = { max_retries = "2" }')
