"""What ``docs/monitoring`` gives to Prometheus, Grafana and KEDA, without a running Prometheus."""

import re
import subprocess
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from celery_ext.cli import delayq
from celery_ext.delays import durations
from celery_ext.doctor import Level, all_alerts, all_checks, explain
from celery_ext.serve.access.gate import TrustedProxies
from celery_ext.serve.metrics import ScaleQuery, Work, routes
from tests.support import ROOT
from tests.support.pages import blocks
from tests.support.serve.prometheus import promtool

MONITORING = ROOT / "docs/monitoring"
ALERTS = MONITORING / "alerts.yaml"


def alerts() -> list[dict[str, Any]]:
    """Returns the alert rules."""
    [group] = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def manifests() -> list[dict[str, Any]]:
    """Returns the manifests for Kubernetes."""
    return [*yaml.safe_load_all((MONITORING / "kubernetes.yaml").read_text(encoding="utf-8"))]


@pytest.mark.wide
def test_prometheus_takes_the_alert_rules() -> None:
    """`promtool check rules` has nothing against them."""
    assert f"SUCCESS: {len(alerts())} rules found" in promtool("check", "rules", str(ALERTS))


@pytest.mark.wide
def test_each_alert_watches_for_what_a_check_looks_for() -> None:
    """The rules are those of the checks, and the worse of two is critical."""
    names = {check.name for check in all_checks()} | {"broker"}
    found = {alert.name: alert for alert in all_alerts()}
    assert [*found] == [rule["alert"] for rule in alerts()]
    assert {alert.check for alert in found.values()} <= names
    for rule in alerts():
        is_error = found[rule["alert"]].level is Level.ERROR
        assert rule["labels"]["severity"] == ("critical" if is_error else "warning")


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    """`promtool test rules` passes, and has for each alert a time at which it fires and one at which it does not."""
    tests = MONITORING / "alerts_test.yaml"
    assert "SUCCESS" in promtool("test", "rules", str(tests))
    cases = [
        case for test in yaml.safe_load(tests.read_text(encoding="utf-8"))["tests"] for case in test["alert_rule_test"]
    ]
    fire = {case["alertname"] for case in cases if case["exp_alerts"]}
    quiet = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert fire == quiet == {rule["alert"] for rule in alerts()}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_each_alert_leads_to_its_runbook(rule: dict[str, Any]) -> None:
    """Each alert has a severity, a summary, a description, and a command that prints what to do."""
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"]
    assert rule["annotations"]["runbook"] == f"delayq doctor --explain {rule['alert']}"
    assert explain(rule["alert"]).startswith(f"## {rule['alert']}\n")


def test_the_example_for_keda_asks_what_the_server_answers() -> None:
    """Its URLs are routes with known parameters, asked with the token of the Service of the other manifests."""
    scaled, auth = yaml.safe_load_all((MONITORING / "keda.yaml").read_text(encoding="utf-8"))
    named = {(each["kind"], each["metadata"]["name"]) for each in manifests()}
    assert ("Deployment", scaled["spec"]["scaleTargetRef"]["name"]) in named
    [first] = scaled["spec"]["triggers"]
    job = yaml.safe_load((MONITORING / "keda-job.yaml").read_text(encoding="utf-8"))
    [of_job] = job["spec"]["triggers"]
    [[by_seconds]] = (yaml.safe_load(block) for block in blocks(ROOT / "docs/how-to/kubernetes.md", "yaml"))
    for trigger, ahead in ((first, ["90s"]), (of_job, ["90s"]), (by_seconds, [])):
        asked = urlsplit(trigger["metadata"]["url"])
        assert ("Service", asked.netloc.split(".")[0]) in named
        query = parse_qs(asked.query)
        assert asked.path in {route.path for route in routes()}
        assert query.keys() <= set(ScaleQuery.__struct_fields__)
        assert query.get("ahead", []) == ahead
        assert all(durations.parse(each) == 90 for each in ahead)
        assert trigger["metadata"]["valueLocation"] in Work.__struct_fields__
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        assert trigger["metadata"]["authMode"] == "bearer"
        assert trigger["authenticationRef"]["name"] == auth["metadata"]["name"]
    assert [each["parameter"] for each in auth["spec"]["secretTargetRef"]] == ["token"]


def test_the_manifests_for_kubernetes_start_what_there_is() -> None:
    """Their commands and options are understood, and probes ask for routes on ports that the containers have."""
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in manifests() if "replicas" in each["spec"]
    }
    assert [*pods] == ["worker", "delayq-transfer", "delayq-serve"]
    for name in ("delayq-transfer", "delayq-serve"):
        [container] = pods[name]["containers"]
        command, *options = container["args"]
        assert {"DELAYQ_BROKER_URL"} == {each["name"] for each in container["env"]}
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert pods[name]["securityContext"]["runAsNonRoot"]
        with delayq.commands[command].make_context(command, options, resilient_parsing=True) as context:
            assert not context.args
            assert (
                context.params["metrics_port" if command == "transfer" else "port"]
                == (container["ports"][0]["containerPort"])
            )
        probe = container["readinessProbe"]["httpGet"]
        assert (probe["path"], probe["port"]) == ("/healthz", container["ports"][0]["name"])
    # Of `delayq serve`, the last: it knows of https at the Ingress, and has nothing against the mode of the tokens.
    assert TrustedProxies(context.params["trusted_proxies"], None).trusts("10.1.2.3")
    [volume] = pods["delayq-serve"]["volumes"]
    assert volume["secret"]["defaultMode"] == 0o440
    assert pods["delayq-serve"]["securityContext"]["fsGroup"] > 0


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    """Panels ask for metrics that are in the reference, and none of journal, cluster and late tasks is left out."""
    asked = set(re.findall(r"delayq_\w+", (MONITORING / "dashboard.json").read_text(encoding="utf-8")))
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `(delayq_\w+)`", page, re.MULTILINE))
    assert {name.removesuffix("_bucket") for name in asked} <= known
    parts = {name for name in known if name.startswith(("delayq_journal_", "delayq_cluster_"))}
    assert parts | {"delayq_held_back_messages", "delayq_too_late_messages_total"} <= asked


@pytest.mark.wide
def test_the_dashboard_is_the_one_that_its_script_writes() -> None:
    """The committed JSON is current."""
    pytest.importorskip("grafana_foundation_sdk", reason="the extra `test` brings grafana-foundation-sdk")
    done = subprocess.run(
        [sys.executable, MONITORING / "dashboard.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
