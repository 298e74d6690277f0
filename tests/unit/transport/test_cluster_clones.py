"""Pools, such as Celery's of producers, make their connections as clones of one that nobody has used."""

import pytest
import redis
from kombu import Connection

from kombu_delayq.cluster import Transport

PARAMS = {"connection_class": redis.Connection, "password": "secret"}


@pytest.mark.parametrize("hosts", ["a", "a:7000,b:7001"])
def test_a_clone_is_for_the_cluster(hosts: str):
    """A clone of a connection to a cluster, used or not, is one as well; all know the same nodes."""
    for scheme in ("delayq+cluster", "delayqs+cluster"):
        connection = Connection(f"{scheme}://{hosts}")
        for clone in (connection.clone(), connection.clone().clone()):
            assert type(clone.transport) is Transport
            assert clone.transport.seeds == connection.transport.seeds
            assert clone.transport.topology_for(PARAMS) is connection.transport.topology_for(PARAMS)
            assert bool(clone.ssl) == (scheme == "delayqs+cluster")
