"""Writes the manifests that repeat a file of this folder: `make manifests`.

deploy/alerts.yml becomes a PrometheusRule, and the dashboard a ConfigMap that Grafana's sidecar
loads. `kustomize` reads no file outside its folder. With `--check` nothing is written; the exit
status is 1 if a manifest is not current.
"""

from __future__ import annotations

import sys
from pathlib import Path

DEPLOY = Path(__file__).parent
MONITORING = DEPLOY / "kubernetes" / "monitoring"
RULES = """\
# Made of deploy/alerts.yml by `make manifests`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: loadmanager
  labels: {app.kubernetes.io/name: loadmanager}
spec:
"""
DASHBOARD = """\
# Made of deploy/grafana/dashboards/loadmanager.json by `make manifests`.
apiVersion: v1
kind: ConfigMap
metadata:
  name: loadmanager-dashboard
  labels: {app.kubernetes.io/name: loadmanager, grafana_dashboard: "1"}
data:
  loadmanager.json: |
"""


def manifests() -> dict[Path, str]:
    """Each file that is made, with its text."""
    rules = (DEPLOY / "alerts.yml").read_text()
    dashboard = (DEPLOY / "grafana" / "dashboards" / "loadmanager.json").read_text()
    return {
        MONITORING / "rules.yaml": RULES + _indented(rules, 2),
        MONITORING / "dashboard.yaml": DASHBOARD + _indented(dashboard, 4),
    }


def _indented(text: str, by: int) -> str:
    return "".join(
        " " * by + line if line.strip() else line for line in text.splitlines(keepends=True)
    )


def main() -> int:
    """Write, or check."""
    stale = [path for path, text in manifests().items() if _read(path) != text]
    for path in stale:
        if "--check" in sys.argv:
            print(f"{path} is not current: run `make manifests`")
        else:
            path.write_text(manifests()[path])
    return 1 if stale and "--check" in sys.argv else 0


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
