"""The REST server of a master that may be on standby."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.configuration import Configuration
from penstock.jobmanager.process.election.joining import reachable_url, tls_of_members
from penstock.jobmanager.process.election.member import Member
from penstock.jobmanager.process.session.session import Session

if TYPE_CHECKING:
    from penstock.rest.server import RestServer


def serve_as(member: Member | None, session: Session, settings: Configuration, **named: Any) -> RestServer | None:
    """Start the REST server of a master, and let the master take part in the election.

    Args:
        member: this process in the election. None means that this process always leads.
        named: further arguments of `Session.serve`.
    """
    if member is None:
        return session.serve(settings, **named)
    session.waits_to_lead, session.confirms_lead, session.on_serving = member.wait, member.confirm, member.serve
    server = session.serve(settings, leader=member.leader_url, leader_tls=tls_of_members(settings), **named)
    member.start("" if server is None else reachable_url(server.url, settings, member.host))
    return server
