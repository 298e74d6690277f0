"""Two weeks in a moment."""

import pytest
from fastapi.testclient import TestClient
from trials import app, end, mails, remind, states


@pytest.fixture
def client():
    mails.clear()
    states.clear()
    with TestClient(app) as client:
        yield client


def test_a_trial_ends_after_two_weeks(client, delayed_tasks):
    assert client.post("/trials", json={"user": "ada"}).status_code == 201
    assert delayed_tasks.has(remind, in_="12d", args=("ada",))
    assert delayed_tasks.has(end, in_="14d", args=("ada",))

    delayed_tasks.advance("12d")
    assert mails == ["ada, your trial ends in two days"]
    assert states == {"ada": "trial"}

    delayed_tasks.advance("2d")
    assert states == {"ada": "ended"}


def test_who_pays_stays(client, delayed_tasks):
    client.post("/trials", json={"user": "ada"})
    delayed_tasks.advance("13d")
    client.post("/trials/ada/payment")

    assert not delayed_tasks.waiting()
    delayed_tasks.advance("30d")
    assert states == {"ada": "paid"}
