"""Steps of a worker on Kubernetes, of which each app takes what it needs: ``app.steps["worker"].add(EndWhenIdle)``."""

import json
import os
import ssl
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any
from urllib.request import Request, urlopen

from celery import bootsteps
from celery.signals import worker_ready
from celery.worker import state

ACCOUNT = Path(os.environ.get("SERVICE_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
API = os.environ.get("KUBERNETES_API", "https://kubernetes.default.svc")


class Watch(bootsteps.StartStopStep):
    """Looks at what a worker does, in a thread."""

    every_s = 1.0

    def start(self, worker: Any) -> None:
        """Begins when the worker consumes."""
        self.ended = Event()
        worker_ready.connect(self.begin)

    def begin(self, **_: Any) -> None:
        """Looks from now on."""
        self.busy_at = monotonic()
        Thread(target=self.watch, daemon=True).start()

    def stop(self, worker: Any) -> None:
        """Ends with it."""
        self.ended.set()

    def watch(self) -> None:
        """Looks every ``every_s`` seconds."""
        while not self.ended.wait(self.every_s):
            if state.reserved_requests:  # these run, or are about to
                self.busy_at = monotonic()
            self.look()

    def look(self) -> None:
        """Does what the step is for."""


class EndWhenIdle(Watch):
    """Ends a worker, as SIGTERM does, that has had nothing to do for a while: one in a job of KEDA's ``ScaledJob``."""

    idle_s = float(os.environ.get("IDLE_SECONDS", "30"))

    def look(self) -> None:
        """Ends the worker if it is idle for long."""
        if monotonic() - self.busy_at > self.idle_s:
            state.should_stop = 0  # the exit code: the job is complete


class DeletionCost(Watch):
    """Tells Kubernetes whether a worker is busy, so that a scale-in takes an idle one. It does so once a change."""

    calm_s = float(os.environ.get("CALM_SECONDS", "30"))
    told: int | None = None

    def look(self) -> None:
        """Writes the annotation of this pod if it is to change."""
        cost = 100 if monotonic() - self.busy_at < self.calm_s else 0
        if cost != self.told:
            try:
                annotate(str(cost))
                self.told = cost
            except OSError as error:  # it is a hint only: try again in a moment
                print(f"the deletion cost of this pod is not told: {error}")


def annotate(cost: str) -> None:
    """Writes the deletion cost of this pod. Its service account needs the verb ``patch`` on pods."""
    body = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}}
    namespace, token = (ACCOUNT / "namespace").read_text(), (ACCOUNT / "token").read_text()
    request = Request(
        f"{API}/api/v1/namespaces/{namespace}/pods/{os.environ['HOSTNAME']}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/strategic-merge-patch+json"},
        method="PATCH",
    )
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt")) if API.startswith("https") else None
    with urlopen(request, timeout=5, context=context):
        pass
