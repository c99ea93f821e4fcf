"""Who moves files: Rucio's mock transfertool with a network below it, so that moving takes its time; or FTS."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Any

from rucio.db.sqla.constants import RequestState
from rucio.transfertool.fts3 import FTS3Transfertool
from rucio.transfertool.mock import MockTransferStatusReport, MockTransfertool

from .network import Flight, Network


class LinkTransfertool(MockTransfertool):  # type: ignore[misc]  # Rucio's server is not installed where mypy runs
    """Takes the name `mock`; all instances are one service, with one network and one memory."""

    network: Network
    _ended: dict[str, bool] = {}  # noqa: RUF012 (shared on purpose); by request id, until Rucio asks

    @classmethod
    def has_news_of(cls, request_ids: Set[str]) -> bool:
        """Whether any of these has ended, or is unknown here and has to start (the daemons were restarted)."""
        cls._ended.update(cls.network.advance(time.monotonic()))
        return not request_ids <= cls.network.known()

    def group_into_submit_jobs(self, transfers: Iterable[list[Any]]) -> list[dict[str, Any]]:
        """Make one job per link and rule, since Rucio cancels whole jobs when a rule ends early."""
        jobs: dict[tuple[str, str, str], list[Any]] = {}
        for hop in chain.from_iterable(transfers):
            jobs.setdefault((hop.src.rse.name, hop.dst.rse.name, hop.rws.rule_id), []).append(hop)
        return [{"transfers": hops, "job_params": {}} for hops in jobs.values()]

    def submit(
        self,
        transfers: Iterable[Any],
        job_params: dict[str, str],  # noqa: ARG002 (the signature is Rucio's)
        timeout: int | None = None,  # noqa: ARG002 (the signature is Rucio's)
    ) -> str:
        """Take a job; returns its id."""
        job = str(uuid.uuid4())
        for hop in transfers:
            file = hop.rws
            flight = Flight(job, file.name, file.retry_count, file.byte_count, starts=0)
            self.network.add(file.request_id, (hop.src.rse.name, hop.dst.rse.name), flight, time.monotonic())
        return job

    def bulk_query(
        self,
        requests_by_eid: Mapping[str, Mapping[str, Any]],
        timeout: int | None = None,  # noqa: ARG002 (the signature is Rucio's)
    ) -> dict[str, dict[str, MockTransferStatusReport]]:
        """Return the transfers that have ended; one unknown here starts (the daemons were restarted)."""
        now = time.monotonic()
        self._ended.update(self.network.advance(now))
        known = self.network.known()
        answer: dict[str, dict[str, MockTransferStatusReport]] = {}
        for job, requests in requests_by_eid.items():
            for request_id, request in requests.items():
                if request_id in self._ended:
                    report = MockTransferStatusReport(request_id, job)
                    report.state = RequestState.DONE if self._ended.pop(request_id) else RequestState.FAILED
                    answer.setdefault(job, {})[request_id] = report
                elif request_id not in known:
                    flight = Flight(job, request["name"], request["retry_count"] or 0, request["bytes"], starts=0)
                    pair = (request["src_rse"].name, request["dst_rse"].name)
                    self.network.add(request_id, pair, flight, now)
        return answer

    def cancel(self, transfer_ids: Iterable[str], timeout: int | None = None) -> bool:  # noqa: ARG002 (as above)
        """Take cancelled transfers off their links."""
        for job in transfer_ids:
            self.network.cancel(job)
        return True


class PatientFts(FTS3Transfertool):  # type: ignore[misc]  # as above
    """Rucio's own waits for ever for an FTS that does not answer a cancellation."""

    def cancel(self, transfer_ids: Sequence[str], timeout: int | None = None) -> object:
        """Cancel a job; returns the answer of FTS."""
        return super().cancel(transfer_ids, timeout or 30)

    def update_priority(self, transfer_id: str, priority: int, timeout: int | None = None) -> object:
        """Change the priority of a job; returns the answer of FTS."""
        return super().update_priority(transfer_id, priority, timeout or 30)


def at_host(external_host: str) -> LinkTransfertool | PatientFts:
    """Return the transfertool to which a request was given; only FTS has an address."""
    return (PatientFts if external_host.startswith("http") else LinkTransfertool)(external_host)
