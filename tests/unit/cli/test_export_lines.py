"""Lines of an export that are none."""

import json

import pytest

from celery_ext.cli.export_format import BadLine, message_line, parse
from kombu_delayq.store.types import Waiting
from tests.support.commands.exports import FUTURE_MS, message

SECRET = "4111 1111 1111 1111"
LINE = message_line(Waiting("q", "t", FUTURE_MS, 0, message(SECRET, "t").encode()))

#: What is wrong: a line, or a field and what it has instead.
BAD_LINES = {
    '{"queue": "q"': "no JSON, or cut off",
    "[" * 5000: "no JSON",
    "[1]": "no JSON object",
    '{"format": "other"}': "the format is 'other'",
    '{"format": "delayq-export", "version": 2}': "the version of the format is 2",
    '{"format": "delayq-export", "messages": "many"}': "messages is 'many'",
    "without:id": "it has no 'id'",
    "queue:1": "queue is 1",
    'queue:""': "queue is empty",
    r'queue:"\ud800"': "queue is '\\ud800'",
    r'id:"\ud800"': "stands for no bytes",
    "due_ms:NaN": "due_ms is nan",
    "due_ms:1e999": "due_ms is inf",
    f"due_ms:-{10**400}": "due_ms is -1000",
    'due_ms:"1"': "due_ms is '1'",
    "due_ms:true": "due_ms is True",
    "due_ms:1": "name different times",
    'due:"soon"': "no time in ISO 8601",
    'due:"2100-01-01T00:00:00"': "no time in ISO 8601 with a zone",
    "priority:10": "priority is 10",
    "priority:-1": "priority is -1",
    "priority:1.5": "priority is 1.5",
    "priority:false": "priority is False",
    f'body:{{"args": ["{SECRET}"]}}': "body is dict",
    f'body:"{SECRET}"': "the body: it is no JSON",
    'body:"[]"': "the body: it is no JSON object",
    r'body:"{\"properties\": {}}"': "no message of kombu",
    r'body:"{\"body\": 1, \"headers\": {}, \"properties\": {}}"': "no message of kombu",
}


@pytest.mark.parametrize("change", BAD_LINES)
def test_a_bad_line_is_named(change: str) -> None:
    """The error says what is wrong, and has nothing of the body."""
    name, _, value = change.partition(":")
    fields = json.loads(LINE)
    if change[0] in "{[":
        bad = change
    elif name == "without":
        bad = json.dumps({each: fields[each] for each in fields if each != value})
    else:
        bad = LINE.replace(f'"{name}": {json.dumps(fields[name])}', f'"{name}": {value}')
        assert bad != LINE
    with pytest.raises(BadLine) as error:
        parse(bad.encode())
    assert BAD_LINES[change] in str(error.value)
    assert SECRET not in str(error.value)
