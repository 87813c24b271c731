"""A person logs in once, with a browser; a reader changes nothing; no other site can use the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.rest.app import create_app
from penstock.rest.auth import TokenFile
from penstock.rest.sessions import COOKIE, LASTS_S, Access
from tests.unit.rest.asgi_client import AsgiClient

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.unit.rest.fake_gateway import FakeGateway


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[Path, Path]:
    admin, reader = tmp_path / "token", tmp_path / "reader"
    admin.write_text("s3cret\n")
    reader.write_text("only-looking\n")
    return admin, reader


@pytest.fixture
def guarded(gateway: FakeGateway, tokens: tuple[Path, Path]) -> AsgiClient:
    admin, reader = (TokenFile(str(path)) for path in tokens)
    return AsgiClient(create_app(gateway, admin, reader=reader))


def logged_in(client: AsgiClient, token: str) -> dict[str, str]:
    """Headers of a page of somebody who has logged in."""
    answer = client.post("/login", json={"token": token})
    assert answer.status_code == 200
    cookie = f"{COOKIE}={answer.cookies[COOKIE]}"
    csrf = client.get("/session", headers={"Cookie": cookie}).json()["csrf"]
    return {"Cookie": cookie, "X-Penstock-CSRF": csrf}


def attributes(answer: httpx.Response) -> set[str]:
    return {part.strip().lower().partition("=")[0] for part in answer.headers["set-cookie"].split(";")[1:]}


def test_the_page_comes_without_a_token_and_data_does_not(guarded: AsgiClient) -> None:
    page = guarded.get("/")
    assert page.status_code == 200
    assert "Socket Window WordCount" not in page.text
    assert guarded.get("/ui/app.js").status_code == 200
    assert guarded.get("/session").json()["role"] is None
    assert guarded.get("/jobs/overview").status_code == 401
    assert guarded.get("/ui/../jobs/overview").status_code in (401, 404)


def test_a_session_stands_for_the_token(guarded: AsgiClient) -> None:
    headers = logged_in(guarded, "s3cret")
    assert guarded.get("/jobs/overview", headers=headers).status_code == 200
    assert guarded.request("DELETE", "/cluster", headers=headers).status_code == 200


def test_the_cookie_is_out_of_reach(guarded: AsgiClient) -> None:
    answer = guarded.post("/login", json={"token": "s3cret"})
    assert {"httponly", "samesite", "max-age"} <= attributes(answer)
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert "path" not in attributes(answer), "below a proxy's prefix it must hold for that prefix"
    assert "s3cret" not in answer.headers["set-cookie"]
    sealed = guarded.post("/login", json={"token": "s3cret"}, headers={"X-Forwarded-Proto": "https"})
    assert "secure" in attributes(sealed)


@pytest.mark.parametrize("csrf", [None, "", "0" * 64])
def test_a_change_needs_the_word_that_only_a_page_of_this_site_knows(guarded: AsgiClient, csrf: str | None) -> None:
    headers = logged_in(guarded, "s3cret")
    del headers["X-Penstock-CSRF"]
    if csrf is not None:
        headers["X-Penstock-CSRF"] = csrf
    assert guarded.request("DELETE", "/cluster", headers=headers).status_code == 403
    assert guarded.get("/overview", headers=headers).status_code == 200


def test_a_reader_only_looks(guarded: AsgiClient) -> None:
    headers = logged_in(guarded, "only-looking")
    assert guarded.get("/session", headers=headers).json()["role"] == "reader"
    assert guarded.get("/overview", headers=headers).status_code == 200
    assert guarded.request("DELETE", "/cluster", headers=headers).status_code == 403
    bearer = {"Authorization": "Bearer only-looking"}
    assert guarded.get("/overview", headers=bearer).status_code == 200
    assert guarded.request("DELETE", "/cluster", headers=bearer).status_code == 403


@pytest.mark.parametrize("token", ["", "wrong", "s3cre"])
def test_who_has_no_token_does_not_get_in(guarded: AsgiClient, token: str) -> None:
    assert guarded.post("/login", json={"token": token}).status_code == 401


def test_a_reader_cannot_make_an_admin_of_the_cookie(guarded: AsgiClient) -> None:
    headers = logged_in(guarded, "only-looking")
    forged = headers["Cookie"].replace("reader.", "admin.")
    assert guarded.get("/overview", headers={"Cookie": forged}).status_code == 401


def test_a_rotated_token_ends_all_sessions(guarded: AsgiClient, tokens: tuple[Path, Path]) -> None:
    headers = logged_in(guarded, "s3cret")
    tokens[0].unlink()
    tokens[0].write_text("another")
    assert guarded.get("/overview", headers=headers).status_code == 401


def test_a_session_ends(tokens: tuple[Path, Path]) -> None:
    now = 1_000_000.0
    access = Access(TokenFile(str(tokens[0])), clock=lambda: now)
    cookies = {COOKIE: access.log_in("s3cret")}
    assert access.identify({}, cookies).role == "admin"
    now += LASTS_S + 1
    with pytest.raises(Exception, match="the session is over"):
        access.identify({}, cookies)


def test_logging_out_takes_the_cookie_away(guarded: AsgiClient) -> None:
    answer = guarded.post("/logout", json={}, headers=logged_in(guarded, "s3cret"))
    assert "max-age=0" in answer.headers["set-cookie"].lower()


def test_without_a_token_everybody_is_an_admin(client: AsgiClient) -> None:
    assert client.get("/session").json()["role"] == "admin"
