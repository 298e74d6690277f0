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
    "[1]": "Expected `object`, got `array`",
    '{"format": "other"}': "Invalid enum value 'other' - at `$.format`",
    '{"format": "delayq-export", "version": 2}': "Invalid enum value 2 - at `$.version`",
    '{"format": "delayq-export", "messages": "many"}': "got `str` - at `$.messages`",
    "without:id": "missing required field `id`",
    "queue:1": "got `int` - at `$.queue`",
    'queue:""': "length >= 1 - at `$.queue`",
    r'queue:"\ud800"': "stands for no bytes",
    r'id:"\ud800"': "stands for no bytes",
    "due_ms:NaN": "due_ms is nan",
    "due_ms:1e999": "due_ms is inf",
    f"due_ms:-{10**400}": "out of range",
    'due_ms:"1"': "got `str` - at `$.due_ms`",
    "due_ms:true": "got `bool` - at `$.due_ms`",
    "due_ms:1": "name different times",
    'due:"soon"': "at `$.due`",
    'due:"2100-01-01T00:00:00"': "at `$.due`",
    "priority:10": "<= 9 - at `$.priority`",
    "priority:-1": ">= 0 - at `$.priority`",
    "priority:1.5": "got `float` - at `$.priority`",
    "priority:false": "got `bool` - at `$.priority`",
    f'body:{{"args": ["{SECRET}"]}}': "got `object` - at `$.body`",
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
