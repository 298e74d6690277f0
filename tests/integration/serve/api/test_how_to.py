"""The examples of the how-to, run by a shell against a real server."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action
from celery_ext.serve.access.tokens import Token, hash_of, write_tokens
from celery_ext.serve.application import make_app
from celery_ext.serve.service import ServeBroker
from celery_ext.serve.settings import ServeSettings
from tests.integration.serve.api.conftest import shop
from tests.support import ROOT
from tests.support.serve.running import in_thread

_PAIR = re.compile(r"```sh\n((?:(?!```).)*)```\n+```json\n(.*?)```", re.DOTALL)
_ACTIONS = (Action.ENQUEUE, Action.READ, Action.RESCHEDULE, Action.CANCEL, Action.RUN)


def shape(value: Any) -> Any:
    """Returns a value without what differs from run to run: texts and numbers."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    return [shape(one) for one in value] if isinstance(value, list) else type(value)


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="curl or jq is not installed")
def test_each_example_answers_what_the_page_shows(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """The commands of the page, one after the other, give answers of the shape that stands below them."""
    file = tmp_path / "tokens.json"
    write_tokens(file, [Token("shop", hash_of("dq_t"), frozenset(_ACTIONS), ("orders*",), ("shop.*",))])
    app = shop(redis_server.url)
    broker = ServeBroker(app, app.connection_for_read)
    page = (ROOT / "docs" / "how-to" / "http-api.md").read_text(encoding="utf-8")
    pairs = _PAIR.findall(page.partition("## Consume\n")[0])  # the rest needs another token
    assert len(pairs) > 3
    with in_thread(make_app(broker, ServeSettings(allow_write=True, tokens=file))) as url:
        for command, shown in pairs:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                capture_output=True,
                text=True,
                env={"PATH": "/usr/bin:/bin", "DELAYQ": url.rstrip("/"), "TOKEN": "dq_t"},
                check=True,
            )
            answer, wanted = json.loads(done.stdout), json.loads(shown)
            if "tasks" in wanted:  # the page shows the beginning of each task
                answer["tasks"] = [{name: task[name] for name in wanted["tasks"][0]} for task in answer["tasks"]]
            if answer.get("state") in ("running", "done"):  # how far it is after the start
                answer["outcomes"] = {}
            assert shape(answer) == shape(wanted), command
    broker.close()
    app.close()
