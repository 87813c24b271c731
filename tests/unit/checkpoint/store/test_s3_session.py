"""The service description of the S3 client: all operations that the engine calls, and few others."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from pathlib import Path
from typing import Any

import botocore
import pytest
import s3fs.core
from aiobotocore.httpsession import AIOHTTPSession
from botocore import xform_name

from penstock.checkpoint.store.s3_session import OPERATIONS, new_session, prepare, shared_session
from penstock.checkpoint.store.s3_store import S3Store
from penstock.connectors.file.storage import file_system

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
DATA = Path(botocore.__file__).parent / "data"


def client(service: str) -> Any:
    async def make() -> Any:
        async with new_session().create_client(service, region_name="us-east-1", **KEYS) as made:
            return made

    return asyncio.run(make())


def test_every_operation_that_s3fs_calls_is_known() -> None:
    source = Path(s3fs.core.__file__).read_text()
    called = set(re.findall(r'_call_s3\(\s*"(\w+)"', source)) | set(re.findall(r'method = "(\w+)"', source))
    assert {"put_object", "list_objects_v2", "upload_part_copy"} <= called | {"list_objects_v2"}
    made = client("s3")
    assert [name for name in called if not hasattr(made, name)] == []


def test_operations_are_described_as_in_botocore() -> None:
    made = client("s3").meta.service_model
    assert set(made.operation_names) == OPERATIONS
    put = made.operation_model("PutObject")
    assert {"Bucket", "Key", "Body", "IfNoneMatch"} <= set(put.input_shape.members)
    assert put.http["method"] == "PUT"
    assert "NoSuchBucket" in {shape.name for shape in made.error_shapes}


@pytest.mark.parametrize(
    ("service", "operation"), [("sts", "assume_role_with_web_identity"), ("sso", "get_role_credentials")]
)
def test_services_that_provide_credentials_are_complete(service: str, operation: str) -> None:
    assert hasattr(client(service), operation)


@pytest.mark.parametrize("region", ["eu-central-1", "cn-north-1", "us-gov-west-1"])
def test_all_regions_and_partitions_are_known(region: str) -> None:
    session = new_session()
    every = [part["partition"] for part in json.loads((DATA / "endpoints.json").read_text())["partitions"]]
    assert session.get_available_partitions() == every

    async def endpoint() -> str:
        async with session.create_client("s3", region_name=region, **KEYS) as made:
            return str(made.meta.endpoint_url)

    assert region in asyncio.run(endpoint())


def test_unused_descriptions_are_not_loaded() -> None:
    loader = new_session().get_component("data_loader")
    assert loader.load_service_model("s3", "service-2")["operations"].keys() == OPERATIONS
    assert all("ec2" not in part["services"] for part in loader.load_data("endpoints")["partitions"])
    texts = set(_documentation(loader.load_service_model("s3", "service-2")))
    assert texts == {""}


def _documentation(description: Any) -> Any:
    if isinstance(description, dict):
        if isinstance(description.get("documentation"), str):
            yield description["documentation"]
        description = list(description.values())
    if isinstance(description, list):
        for part in description:
            yield from _documentation(part)


def test_names_of_operations_are_those_of_methods() -> None:
    assert {xform_name(name) for name in OPERATIONS} >= {
        "put_object",
        "get_object",
        "list_objects_v2",
        "delete_objects",
    }


def test_files_on_s3_reuse_the_descriptions_of_the_checkpoint_store() -> None:
    assert file_system("s3://bucket/x", {"key": "a", "secret": "b"}).session is shared_session()
    assert file_system("s3://bucket/x", {"profile": "mine"}).session is None


async def _context(store: Any) -> Any:
    s3 = await store._file_system().set_session()
    connector = await s3._endpoint.http_session._create_connector(None)
    context = connector._ssl
    await connector.close()
    return context


def test_servers_are_verified_against_certificates_that_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare()

    def read(_: object) -> None:
        raise AssertionError("they were read again")

    monkeypatch.setattr(AIOHTTPSession, "_build_verify_context", read)
    keys = {"key": "a", "secret": "b", "asynchronous": True}
    contexts = [asyncio.run(_context(S3Store(keys))) for _ in range(2)]
    assert contexts[0] is contexts[1]
    assert contexts[0].verify_mode is ssl.CERT_REQUIRED
    assert contexts[0].check_hostname
    assert len(contexts[0].get_ca_certs()) > 50


def test_a_client_with_different_settings_has_a_separate_context() -> None:
    trusting = {"key": "a", "secret": "b", "asynchronous": True, "client_kwargs": {"verify": False}}
    context = asyncio.run(_context(S3Store(trusting)))
    assert context.verify_mode is ssl.CERT_NONE


def test_directory_buckets_create_a_session() -> None:
    """S3 Express: the client creates the session before its first request."""
    assert hasattr(client("s3"), "create_session")
