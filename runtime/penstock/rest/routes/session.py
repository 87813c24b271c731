"""The login with a browser. See `penstock.rest.sessions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from penstock import __version__
from penstock.rest.errors import BadRequest, Unauthorized
from penstock.rest.sessions import COOKIE, LASTS_S

if TYPE_CHECKING:
    from penstock.rest.sessions import Access


class LogIn(BaseModel):
    token: str


def session_routes(access: Access) -> APIRouter:
    router = APIRouter(tags=["session"])

    @router.get("/session")
    def session(request: Request, response: Response) -> dict[str, object]:
        """Return the identity of the page's user."""
        response.headers["Cache-Control"] = "no-store"
        found: dict[str, object] = {"version": __version__, "token": access.admin is not None}
        try:
            identity = access.identify(request.headers, request.cookies)
        except (BadRequest, Unauthorized):
            return found | {"role": None, "csrf": ""}
        return found | {"role": identity.role, "csrf": identity.csrf}

    @router.post("/login")
    def log_in(request: Request, given: LogIn, response: Response) -> dict[str, object]:
        """Log in with the token. Respond with 401 if the cluster does not have this token."""
        is_sealed = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
        # Without a path, a browser uses the directory of this request, which includes a proxy's prefix.
        response.set_cookie(
            COOKIE,
            access.log_in(given.token.strip()),
            max_age=LASTS_S,
            path=None,
            httponly=True,
            samesite="strict",
            secure=is_sealed,
        )
        return {}

    @router.post("/logout")
    def log_out(request: Request, response: Response) -> dict[str, object]:
        """End the session. Copies of its cookie become invalid too."""
        cookie = request.cookies.get(COOKIE)
        if cookie:
            access.log_out(cookie)
        response.set_cookie(COOKIE, "", max_age=0, path=None, httponly=True, samesite="strict")
        return {}

    return router
