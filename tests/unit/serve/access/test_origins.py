import pytest

from celery_ext.serve.access.gate import check_host, check_origin
from celery_ext.serve.problems import Problem

HOST = {"host": "tasks.example.org:5556"}
OWN = {"origin": "http://tasks.example.org:5556"}


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:5556", "localhost.:80", "delayq.localhost", "127.0.0.1", "127.0.0.1:5556"),
        *("[::1]", "[::1]:5556", "10.1.2.3:5556", "tasks.example.org", "Tasks.Example.ORG:80", "a.example.net"),
    ],
)
def test_names_of_ours_are_let_in(host: str) -> None:
    """A request may name this machine, an address, or a host that is allowed."""
    check_host(host, ["tasks.example.org", "*.example.net"])


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example.com", "localhost.evil.com", "tasks.example.org.evil.com", "example.net", "127.0.0.1.evil"),
        *("[::1", "[::1].evil.com", "evil[::1]", "1.2.3", "0x7f.1", "notlocalhost"),
    ],
)
def test_other_names_are_refused(host: str) -> None:
    """A name that somebody else can give the address of this machine is refused."""
    with pytest.raises(Problem) as caught:
        check_host(host, ["tasks.example.org", "*.example.net"])
    assert caught.value.status == 421


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {}),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}),
        ("GET", {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}),
        ("POST", {"sec-fetch-site": "same-origin"}),
        ("POST", {"sec-fetch-site": "none"}),
        ("DELETE", {"sec-fetch-site": "same-origin", "origin": "null"}),
        ("POST", OWN),
        ("PATCH", {"origin": "HTTP://tasks.example.ORG:5556"}),
    ],
)
def test_requests_of_the_page_itself_are_let_in(method: str, headers: dict[str, str]) -> None:
    """The page may change something, and anybody may link to it."""
    check_origin(method, HOST | headers)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "BREW"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": ""},
        {"sec-fetch-site": "cross-site"} | OWN,
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://tasks.example.org"},
        {"origin": "http://evil.example.com"},
        {"origin": "http://tasks.example.org:5556.evil.com"},
        {"origin": "http://user@tasks.example.org:5556"},
        {"origin": "http://["},
        {"origin": "tasks.example.org:5556"},
    ],
    ids=str,
)
def test_what_another_site_may_have_sent_changes_nothing(method: str, headers: dict[str, str]) -> None:
    """A browser's word for it counts, else the origin has to be the host that was asked."""
    with pytest.raises(Problem) as caught:
        check_origin(method, HOST | headers)
    assert (caught.value.status, caught.value.kind) == (403, "cross-site")


@pytest.mark.parametrize("mode", ["cors", "no-cors", "websocket"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_script_of_another_site_does_not_make_us_work(site: str, mode: str) -> None:
    """A search costs something, so scripts of other sites cannot begin one."""
    with pytest.raises(Problem):
        check_origin("GET", HOST | {"sec-fetch-site": site, "sec-fetch-mode": mode})


def test_a_host_that_is_missing_is_no_origin() -> None:
    """Two empty texts are not the same place."""
    with pytest.raises(Problem):
        check_origin("POST", {"origin": "null", "host": ""})
