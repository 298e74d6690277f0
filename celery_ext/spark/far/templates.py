"""Templates of messages as the metadata of a Parquet file keeps them."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from celery_ext.publish.template import MessageForm, Template


class StoredTemplate(NamedTuple):
    """A template that was read from a file.

    Attributes:
        queue: The list that the message goes to.
        priority: 0 to 9.
        form: The text of the message.
    """

    queue: str
    priority: int
    form: MessageForm


def written(templates: Mapping[int, Template]) -> bytes:
    """Returns templates as JSON. templates: By the number that the column ``template`` has."""
    return json.dumps(
        {
            number: {
                "queue": template.queue,
                "priority": template.priority,
                "text": template.form.text,
                "slots": template.form.slots,
            }
            for number, template in templates.items()
        }
    ).encode()


def parsed(content: bytes) -> dict[int, StoredTemplate]:
    """Returns the templates that ``written`` has written."""
    return {
        int(number): StoredTemplate(
            found["queue"], min(max(found["priority"], 0), 9), MessageForm(found["text"], found["slots"])
        )
        for number, found in json.loads(content).items()
    }
