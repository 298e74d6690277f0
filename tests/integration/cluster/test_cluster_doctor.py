"""``delayq doctor`` on a Redis Cluster."""

from kombu import Connection

from celery_ext.doctor import CHECKS, examine
from tests.support.servers.cluster import PrivateCluster


def test_each_primary_is_looked_at(cluster: PrivateCluster) -> None:
    """Checks of servers name the node, and no check fails because there are several."""
    checks = [check for check in CHECKS if check.name != "transport"]
    found = list(examine(checks, None, lambda: Connection(cluster.url), timeout_s=0.2))
    bad = {finding.check: finding for finding in found if finding.level.is_bad}
    assert not [finding for finding in found if "the check failed" in finding.found]
    assert {finding.check for finding in found} >= {"broker", "eviction", "clock", "consumers", "workers"}
    assert set(bad) <= {"persistence", "leader"}
