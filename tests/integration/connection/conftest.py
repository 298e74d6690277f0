"""A server with the users of the page about ACLs."""

from tests.support.servers.acl import users

__all__ = ["users"]
