"""What Prometheus sees: counters of what this process did, and the ledger's numbers, read at each scrape."""

from __future__ import annotations

from dc_inject.metrics.counting import Metrics
