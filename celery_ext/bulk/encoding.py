"""What Celery's serializer ``json`` writes."""

from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any

from kombu.utils.json import JSONEncoder

#: Any value as JSON, without a new encoder for each.
to_json: Callable[[Any], str] = JSONEncoder().encode
#: A text as JSON.
text_to_json: Callable[[str], str] = encode_basestring_ascii
