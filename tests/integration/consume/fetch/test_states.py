"""The states of a fetcher, and what leads from one to the next."""

from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.consume.fetcher import State
from tests.support.conditions import until
from tests.support.looped import Looped, publish
from tests.support.servers.refusing import busy
from tests.support.workers.harness import TRANSPORT, Proj
from tests.support.workers.held import in_hand


def test_a_fetcher_goes_from_state_to_state(proj: Proj, sender: Connection) -> None:
    """It waits, asks when a message comes, is full, and asks again; a lost reply is put right before all else."""
    client = proj.server.client()
    with Looped(proj.connection(), "a", prefetch=1, acks=False) as looped:
        fetcher = looped.channel.fetcher
        assert fetcher.state is State.EAGER
        looped.until(looped.waits_for("a"))
        looped.until(lambda: fetcher.state is State.WAITING, "both queue and replies are empty")
        publish(sender, "a", 1, 2, 3)
        looped.until(lambda: fetcher.state is State.ASKED)
        looped.until(lambda: fetcher.state is State.FULL)
        assert looped.received == [1]
        looped.messages[0].ack()
        assert fetcher.state is State.EAGER
        looped.send()
        assert fetcher.state is State.ASKED
        until(lambda: client.llen("a") == 1, what="Redis has run the request")
        looped.channel.drop_connections()
        assert fetcher.state is State.UNSURE
        looped.until(lambda: looped.received == [1, 2])
        assert (client.llen("a"), in_hand(client)) == (1, 1)
    assert fetcher.state is State.CLOSED


def test_a_fetcher_rests_while_redis_gives_nothing(own_server: PrivateRedis) -> None:
    """After an error that passes it asks again in a second, and neither asks nor waits before."""
    connection = Connection(own_server.url, transport=TRANSPORT, transport_options={"transfer": False})
    with Looped(connection, "a") as looped, busy(own_server):
        looped.until(lambda: looped.channel.fetcher.state is State.RESTING)


def test_messages_are_delivered_before_more_are_asked_for(proj: Proj, sender: Connection) -> None:
    """While callbacks have not had all messages of a request, the fetcher delivers."""

    def fail(message: object) -> None:
        raise LookupError(message)

    publish(sender, "a", 1, 2)
    with Looped(proj.connection(), "a", acks=False, on_message=fail) as looped:
        try:
            looped.until(lambda: False)
        except LookupError:
            assert looped.channel.fetcher.state is State.DELIVERING
