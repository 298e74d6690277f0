"""Bodies that would take all memory or time: they are not read, in a moment and in little memory."""

import base64
import bz2
import json
import lzma
import pickle
import zlib
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from time import process_time
from typing import Any

import pytest
from kombu import compression

from celery_ext.waiting import DelayedTask
from kombu_delayq.message import bodies
from kombu_delayq.message.bodies import MSGPACK, PICKLE, YAML
from kombu_delayq.message.due import Due, eta_of
from kombu_delayq.message.fields import Message
from kombu_delayq.store.types import Waiting
from tests.support.messages import ETA, ETA_MS

#: Far more than an honest body of these sizes takes, and far less than these take without bounds.
MOST_S, MOST_KB = 8.0, 400_000


def _laughs() -> bytes:
    """Returns YAML in which each of ten lists has the one before nine times."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(lines).encode()


def _merges() -> bytes:
    """Returns YAML in which each mapping merges the one before twice."""
    lines = ["a0: &a0 {k: 1}"] + [f"a{n}: &a{n}\n  <<: [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    return "\n".join(lines).encode()


def _nested(levels: int) -> list[Any]:
    found: list[Any] = [1] * 9
    for _ in range(levels):
        found = [found] * 9
    return found


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _keyed(levels: int, times: int = 1, end: bytes = b"K\x01s") -> bytes:
    """Returns a pickle of sets or dicts with one key: a tuple of one tuple twice, and so on, which nobody can hash."""
    tuples = b"K\x01" + b"2\x86\x94" + b"".join(b"h%c\x86\x94" % level for level in range(levels))
    return b"\x80\x04" + tuples + (b"}h%c" % levels + end + b"0") * times + b"N."


HOSTILE = {
    "aliases": (_laughs(), YAML),
    "merges": (_merges(), YAML),
    "long text": (b"a: &a '" + b"x" * 50_000 + b"'\nb: [" + b",".join([b"*a"] * 10_000) + b"]", YAML),
    "cycle": (b"&a [*a]", YAML),
    "deep": (b"[" * 50_000, YAML),
    "deep block": (b"- " * 40_000 + b"1", YAML),
    "integer": (b"1" + b":59" * 30_000, YAML),
    "hexadecimal": (b"0x" + b"f" * 50_000, YAML),
    "large yaml": (b"[" + b"1," * 2_000_000 + b"1]", YAML),
    "memo": (b"\x80\x02]r\xff\xff\xff\x0f.", PICKLE),
    "memo in text": (b"(lp900000000\n.", PICKLE),
    "memo's parts": (pickle.dumps(_nested(12)), PICKLE),
    "pickled cycle": (pickle.dumps(_endless()), PICKLE),
    "bytearray": (b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b"x.", PICKLE),
    "keys": (_keyed(60), PICKLE),
    "keys of a set": (_keyed(60, end=b"0\x8f(h\x3c\x90"), PICKLE),
    "keys of a frozenset": (_keyed(60, end=b"0(h\x3c\x91"), PICKLE),
    "keys of a dict at once": (_keyed(60, end=b"0(h\x3cK\x01d"), PICKLE),
    "one key in many": (_keyed(14, times=10_000), PICKLE),
    "pickled integer": (pickle.dumps(1 << 500_000), PICKLE),
    "large pickle": (pickle.dumps([[] for _ in range(1_000_000)]), PICKLE),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_not_read(name: str) -> None:
    """It is refused, in a moment, and takes next to no memory."""
    begun, before_kb = process_time(), getrusage(RUSAGE_SELF).ru_maxrss
    with pytest.raises((bodies.UnreadableBody, ValueError)):
        bodies.loads(*HOSTILE[name])
    assert process_time() - begun < MOST_S
    assert getrusage(RUSAGE_SELF).ru_maxrss - before_kb < MOST_KB


#: Tuples as keys, and in each other, and sets of them.
_KEYS = {(at, ("x", at)): [{"y": (at,)}] for at in range(900)}
_SETS = [{frozenset((1, (2, ()))), ()}] * 2


@pytest.mark.parametrize(
    ("raw", "kind", "content"),
    [
        (b"a: &a [1, 2]\nb: *a\nc: {<<: {x: 1}, y: 2}", YAML, {"a": [1, 2], "b": [1, 2], "c": {"x": 1, "y": 2}}),
        (b"", YAML, None),
        (b"[" * 150 + b"]" * 150, YAML, json.loads("[" * 150 + "]" * 150)),
        (pickle.dumps([_nested(3), 1 << 5000, "x"] * 2), PICKLE, [_nested(3), 1 << 5000, "x"] * 2),
        (pickle.dumps(_SETS), PICKLE, _SETS),
        *((pickle.dumps(_KEYS, protocol), PICKLE, _KEYS) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
        (b"\x81\xa1a\x01", MSGPACK, {"a": 1}),
    ],
    ids=range(7 + pickle.HIGHEST_PROTOCOL),
)
def test_an_honest_body_is_read(raw: bytes, kind: str, content: Any) -> None:
    """Parts that stand several times, depth and long integers are no fault within the bounds."""
    assert bodies.loads(raw, kind) == content


def compressed(method: str, raw: bytes) -> Message:
    body, kind = compression.compress(raw, method)
    return {
        "body": base64.b64encode(body).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "t", "id": "i", "compression": kind},
        "properties": {"body_encoding": "base64", "delivery_tag": "t"},
    }


@pytest.mark.parametrize("method", ["zlib", "bzip2", "lzma"])
def test_a_small_body_does_not_become_a_large_one(method: str) -> None:
    """What is larger than the bound is not decompressed; what is smaller is, by whoever shows arguments, too."""
    bomb = compressed(method, b"[" + b" " * 200_000_000 + b"]")
    with pytest.raises(bodies.UnreadableBody, match="more than 10,000,000 bytes"):
        bodies.unpacked(bomb)
    assert DelayedTask(Waiting("q", "i", 0.0, 0, json.dumps(bomb).encode())).args is None
    large = json.dumps([["x" * 9_000_000], {}, {}]).encode()
    assert bodies.unpacked(compressed(method, large)) == large


@pytest.mark.parametrize(
    "cut", [zlib.compress(b"[1]" * 9)[:-6], bz2.compress(b"[1]")[:-4], lzma.compress(b"[1]")[:-4]], ids=["z", "b", "l"]
)
def test_a_compressed_body_that_is_cut_off_is_damaged(cut: bytes) -> None:
    """As with kombu's own functions, nothing is read of it."""
    method = {b"x": "zlib", b"B": "bzip2", b"\xfd": "lzma"}[cut[:1]]
    message = compressed(method, b"")
    message["body"] = base64.b64encode(cut).decode()
    with pytest.raises(bodies.UnreadableBody):
        bodies.unpacked(message)


@pytest.mark.parametrize("write", [lambda task: json.dumps(task).encode(), pickle.dumps], ids=["yaml", "pickle"])
def test_what_is_not_accepted_is_not_decoded(monkeypatch: pytest.MonkeyPatch, write: Callable[[Any], bytes]) -> None:
    """An eta of protocol 1 is looked for in the bodies alone that the consumer accepts."""
    kind = PICKLE if write is pickle.dumps else YAML
    raw = write({"task": "t", "id": "i", "args": [], "eta": ETA})
    properties = {"correlation_id": "i", "body_encoding": "base64", "delivery_tag": "t"}
    message = {"body": base64.b64encode(raw).decode(), "content-type": kind, "headers": {}, "properties": properties}
    assert eta_of(message, {kind}) == eta_of(message) == Due(ETA_MS, False, "i")

    def refuse(*args: Any) -> None:
        raise AssertionError("it is decoded")

    monkeypatch.setattr(bodies, "unpacked", refuse)
    assert eta_of(message, {"application/json"}) is None
