"""The end of a job on its driver, while the broker comes and goes."""

from pyspark.sql.pandas.types import from_arrow_schema

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.prepare import prepare
from tests.support.servers.proxies import Proxy
from tests.support.spark.landing import landed
from tests.support.spark.making import batch_of


class LosesCounts(Proxy):
    """Cuts the connection in place of replies to those who read what Redis remembers of a job.

    Attributes:
        left: How many replies are lost next.
    """

    def __init__(self, target: int) -> None:
        self.left = 0
        self._is_asked = False
        super().__init__(target, on_request=self._watch, on_reply=self._lose)

    def _watch(self, request: bytes) -> bytes:
        self._is_asked = b"HGETALL" in request
        return request

    def _lose(self, reply: bytes) -> bytes | None:
        if not (self._is_asked and self.left):
            return reply
        self.left -= 1
        return None


def test_a_committed_job_waits_for_its_counts(redis_server: PrivateRedis) -> None:
    """All is sent and committed by then, so it does not fail because Redis is away for longer than redis-py tries."""
    redis_server.client().flushall()
    batch = batch_of(n=[1, 2, 3])
    with LosesCounts(redis_server.port) as proxy:
        options = WriteOptions.parse({"broker_url": proxy.url, "task": "t", "job_id": "j", "write_timeout": "60s"})
        writer = prepare(options, from_arrow_schema(batch.schema), False, "j")
        report = writer.write("j", iter([batch]))
        proxy.left = 8
        writer.commit("j", writer.run, [report])
        assert proxy.left == 0
    assert len(landed(redis_server)) == 3
