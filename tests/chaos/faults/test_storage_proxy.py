"""The proxy in front of a real S3 server really has the effects that it reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import s3fs

from tests.chaos.faults.storage_proxy import Disorder, StorageProxy, Target

if TYPE_CHECKING:
    from tools.servers.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.chaos]

FOLDER = "engine/proxy"


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[StorageProxy]:
    with StorageProxy(s3.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def direct(s3: S3Server) -> Any:
    return s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False, **s3.storage_options())


@pytest.fixture
def through(s3: S3Server, proxy: StorageProxy) -> Any:
    """Return a client that does not retry."""
    options = {**s3.storage_options(), "endpoint_url": proxy.endpoint_url}
    once = {"retries": {"total_max_attempts": 1}}
    fs = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False, config_kwargs=once, **options)
    fs.retries = 1
    return fs


def refused(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - s3fs gives what botocore and aiohttp give
        call()
    return caught.value


def test_undisturbed_requests_pass_unchanged(through: Any, direct: Any) -> None:
    for size in (0, 10, 3 << 20):
        path = f"{FOLDER}/whole-{size}"
        through.pipe_file(path, b"x" * size)
        assert direct.cat_file(path) == through.cat_file(path) == b"x" * size
        assert through.info(path)["size"] == size
    assert len(through.find(FOLDER)) >= 3
    with through.open(f"{FOLDER}/parts", "wb", block_size=5 << 20) as file:
        file.write(b"y" * (11 << 20))
    assert direct.info(f"{FOLDER}/parts")["size"] == 11 << 20
    through.rm_file(f"{FOLDER}/parts")
    assert not direct.exists(f"{FOLDER}/parts")


def test_a_refused_request_is_not_executed(proxy: StorageProxy, through: Any, direct: Any) -> None:
    order = proxy.order(Disorder.REFUSE, Target.WRITE)
    assert isinstance(refused(lambda: through.pipe_file(f"{FOLDER}/refused", b"x")), PermissionError)
    assert order.took == 1
    assert not direct.exists(f"{FOLDER}/refused")


def test_a_request_whose_response_is_lost_is_executed(proxy: StorageProxy, through: Any, direct: Any) -> None:
    order = proxy.order(Disorder.LOSE_ANSWER, Target.MANIFEST, times=100)
    refused(lambda: through.pipe_file(f"{FOLDER}/chk-1/_metadata", b"x"))
    assert order.took >= 1
    assert direct.cat_file(f"{FOLDER}/chk-1/_metadata") == b"x"


def test_a_late_request_is_executed_after_its_client_gives_up(proxy: StorageProxy, through: Any, direct: Any) -> None:
    proxy.order(Disorder.LATE, Target.WRITE, times=100, seconds=4.0)
    refused(lambda: through.pipe_file(f"{FOLDER}/late", b"x"))
    assert not direct.exists(f"{FOLDER}/late")
    proxy.wait_for_late()
    assert direct.cat_file(f"{FOLDER}/late") == b"x"


@pytest.mark.parametrize("disorder", [Disorder.CUT_REQUEST, Disorder.CUT_ANSWER])
def test_half_a_body_is_noticed_and_stores_nothing(
    proxy: StorageProxy, through: Any, direct: Any, disorder: Disorder
) -> None:
    direct.pipe_file(f"{FOLDER}/half", b"whole")
    order = proxy.order(disorder, times=100)
    call = through.pipe_file if disorder is Disorder.CUT_REQUEST else through.cat_file
    arguments = (b"x" * 100,) if disorder is Disorder.CUT_REQUEST else ()
    refused(lambda: call(f"{FOLDER}/half", *arguments))
    assert order.took >= 1
    assert direct.cat_file(f"{FOLDER}/half") == b"whole"


def test_a_delay_ends_after_its_time(proxy: StorageProxy, through: Any) -> None:
    through.pipe_file(f"{FOLDER}/slow", b"x")
    proxy.order(Disorder.DELAY, times=100, seconds=0.3, lasts_s=0.5)
    began = time.monotonic()
    while time.monotonic() - began < 0.5:
        through.cat_file(f"{FOLDER}/slow")
    assert time.monotonic() - began >= 0.6
    began = time.monotonic()
    through.cat_file(f"{FOLDER}/slow")
    assert time.monotonic() - began < 0.3


def test_a_closed_port_refuses_connections_and_opens_again(proxy: StorageProxy, through: Any) -> None:
    through.pipe_file(f"{FOLDER}/port", b"x")
    proxy.close_port()
    refused(lambda: through.cat_file(f"{FOLDER}/port"))
    proxy.open_port()
    assert through.cat_file(f"{FOLDER}/port") == b"x"
