"""Logins of browsers: a person logs in once, a reader changes nothing, and no other site can use the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.rest.auth import TokenFile
from penstock.rest.sessions import COOKIE, LASTS_S, Access, EndedSessions

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.unit.rest.asgi_client import AsgiClient


def logged_in(client: AsgiClient, token: str) -> dict[str, str]:
    """Log in and return the headers that a page of this person sends."""
    answer = client.post("/login", json={"token": token})
    assert answer.status_code == 200
    cookie = f"{COOKIE}={answer.cookies[COOKIE]}"
    csrf = client.get("/session", headers={"Cookie": cookie}).json()["csrf"]
    return {"Cookie": cookie, "X-Penstock-CSRF": csrf}


def attributes(answer: httpx.Response) -> set[str]:
    return {part.strip().lower().partition("=")[0] for part in answer.headers["set-cookie"].split(";")[1:]}


def test_the_page_is_served_without_a_token_and_data_is_not(guarded: AsgiClient) -> None:
    page = guarded.get("/")
    assert page.status_code == 200
    assert "Socket Window WordCount" not in page.text
    assert guarded.get("/ui/app.js").status_code == 200
    assert guarded.get("/session").json()["role"] is None
    assert guarded.get("/jobs/overview").status_code == 401
    assert guarded.get("/ui/../jobs/overview").status_code in (401, 404)


def test_a_session_replaces_the_token(guarded: AsgiClient) -> None:
    headers = logged_in(guarded, "s3cret")
    assert guarded.get("/jobs/overview", headers=headers).status_code == 200
    assert guarded.request("DELETE", "/cluster", headers=headers).status_code == 200


def test_scripts_cannot_read_the_cookie(guarded: AsgiClient) -> None:
    answer = guarded.post("/login", json={"token": "s3cret"})
    assert {"httponly", "samesite", "max-age"} <= attributes(answer)
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert "path" not in attributes(answer), "below a proxy's prefix it must hold for that prefix"
    assert "s3cret" not in answer.headers["set-cookie"]
    sealed = guarded.post("/login", json={"token": "s3cret"}, headers={"X-Forwarded-Proto": "https"})
    assert "secure" in attributes(sealed)


@pytest.mark.parametrize("csrf", [None, "", "0" * 64])
def test_a_change_needs_the_csrf_token_of_a_page_of_this_site(guarded: AsgiClient, csrf: str | None) -> None:
    headers = logged_in(guarded, "s3cret")
    del headers["X-Penstock-CSRF"]
    if csrf is not None:
        headers["X-Penstock-CSRF"] = csrf
    assert guarded.request("DELETE", "/cluster", headers=headers).status_code == 403
    assert guarded.get("/overview", headers=headers).status_code == 200


def test_a_reader_can_only_read(guarded: AsgiClient) -> None:
    headers = logged_in(guarded, "only-looking")
    assert guarded.get("/session", headers=headers).json()["role"] == "reader"
    assert guarded.get("/overview", headers=headers).status_code == 200
    assert guarded.request("DELETE", "/cluster", headers=headers).status_code == 403
    bearer = {"Authorization": "Bearer only-looking"}
    assert guarded.get("/overview", headers=bearer).status_code == 200
    assert guarded.request("DELETE", "/cluster", headers=bearer).status_code == 403


@pytest.mark.parametrize("token", ["", "wrong", "s3cre"])
def test_a_person_without_a_token_cannot_log_in(guarded: AsgiClient, token: str) -> None:
    assert guarded.post("/login", json={"token": token}).status_code == 401


def test_a_reader_cannot_turn_the_cookie_into_that_of_an_admin(guarded: AsgiClient) -> None:
    headers = logged_in(guarded, "only-looking")
    forged = headers["Cookie"].replace("reader.", "admin.")
    assert guarded.get("/overview", headers={"Cookie": forged}).status_code == 401


def test_a_rotated_token_ends_all_sessions(guarded: AsgiClient, tokens: tuple[Path, Path]) -> None:
    headers = logged_in(guarded, "s3cret")
    tokens[0].unlink()
    tokens[0].write_text("another")
    assert guarded.get("/overview", headers=headers).status_code == 401


def test_a_session_expires(tokens: tuple[Path, Path]) -> None:
    now = 1_000_000.0
    access = Access(TokenFile(str(tokens[0])), clock=lambda: now)
    cookies = {COOKIE: access.log_in("s3cret")}
    assert access.identify({}, cookies).role == "admin"
    now += LASTS_S + 1
    with pytest.raises(Exception, match="the session has expired"):
        access.identify({}, cookies)


def test_logout_removes_the_cookie(guarded: AsgiClient) -> None:
    answer = guarded.post("/logout", json={}, headers=logged_in(guarded, "s3cret"))
    assert "max-age=0" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize("token", ["s3cret", "only-looking"])
def test_logout_ends_the_session_for_copies_of_the_cookie(guarded: AsgiClient, token: str) -> None:
    headers, other = logged_in(guarded, token), logged_in(guarded, token)
    assert guarded.post("/logout", headers=headers).status_code == 200
    assert guarded.get("/overview", headers=headers).status_code == 401
    assert guarded.get("/session", headers=headers).json()["role"] is None
    assert guarded.get("/overview", headers=other).status_code == 200
    assert guarded.post("/logout", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "cookie",
    ["x", "admin", "admin.1", "admin..", "admin.\u0663.a.b", f"admin.{'9' * 5000}.a.b", "admin.9999999999.ab.\xe4", "root.1.2.3", "." * 1000],
)  # fmt: skip
def test_a_malformed_cookie_is_a_bad_request(guarded: AsgiClient, cookie: str) -> None:
    headers = {"Cookie": f"penstock-session={cookie}".encode()}
    for path in ("/overview", "/jobs"):
        found = guarded.get(path, headers=headers)
        assert found.status_code == 400
        assert "delete the cookie" in found.json()["errors"][1]
    assert guarded.post("/logout", headers=headers).status_code == 400
    assert guarded.get("/session", headers=headers).json()["role"] is None


def test_a_csrf_token_with_other_characters_is_refused(guarded: AsgiClient) -> None:
    headers = {**logged_in(guarded, "s3cret"), "X-Penstock-CSRF": b"\xe4"}
    assert guarded.request("DELETE", "/cluster", headers=headers).status_code == 403


def test_many_logouts_use_little_memory() -> None:
    ended = EndedSessions(limit=3)
    for number in range(4):
        ended.add(f"s{number}", 100 + number, now=0)
    assert all(ended.has(f"s{number}", 100 + number) for number in range(4))
    assert not ended.has("later", 200)
    ended.add("old", 1, now=500)
    assert ended.has("old", 1)


def test_every_client_is_an_admin_without_a_token(client: AsgiClient) -> None:
    assert client.get("/session").json()["role"] == "admin"
