"""Who we are at each service, and until when: checked regularly, with a warning before credentials expire."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine.context import EngineContext
from dc_inject.model import Hold
from dc_inject.model.errors import LedgerError, NeedsOperator, ServiceError, Temporary
from dc_inject.model.ports import Identity
from dc_inject.planning.reconcile import backoff

log = logging.getLogger(__name__)

MEND_FIRST = timedelta(seconds=1)  # after a refusal the service is asked again at once, and then after this
MEND_SOON = timedelta(seconds=4)  # at most, where the last answer had no end of credentials
MEND_EVERY = timedelta(seconds=20)  # at most, where we were refused again
CHECK_EVERY = timedelta(hours=1)  # how often a service that works is asked who we are, and until when
WARN_BEFORE = timedelta(minutes=65)  # the end of credentials: an hour, also where the first answer is lost
LOOK_EVERY = timedelta(minutes=5)  # how often it is looked then whether they have been renewed


class Checking:
    """Asks services who we are: refused ones at once, and then with back-off until it works, others hourly."""

    def __init__(self, context: EngineContext, works_again: Callable[[], None]) -> None:
        """Take what the engine's parts share, and what is to be done when a service works again."""
        self._context = context
        self._works_again = works_again
        self._mending: dict[str, tuple[int, datetime]] = {}  # service -> how often it was asked, when to ask again
        self._check_at = context.clock.now() + CHECK_EVERY
        self._look_at = context.clock.now()
        self._asked: set[str] = set()  # services that are being asked
        self._warned: dict[str, datetime] = {}  # which end of credentials was warned of
        self._ends: dict[str, tuple[datetime, timedelta]] = {}  # of credentials, and how long before that is soon
        for identity in context.identities.values():
            self._watch(identity)

    def round(self, now: datetime) -> None:
        """Ask whom it is time to ask.

        Often, too, while we do not know whether we may end what we make: without that right much less is given.
        """
        # A clock that went forward and back leaves moments behind that would not come for hours.
        self._look_at = min(self._look_at, now + LOOK_EVERY)
        self._check_at = min(self._check_at, now + CHECK_EVERY)
        unsure = {service for service, identity in self._context.identities.items() if identity.may_end is None}
        waiting = set(self._context.broken) | unsure
        self._mending = {service: tries for service, tries in self._mending.items() if service in waiting}
        services = set()
        for service in waiting - self._asked:
            times, again_at = self._mending.get(service, (0, now))
            if not now < again_at <= now + MEND_EVERY:
                self._mending[service] = times + 1, now + MEND_EVERY
                services.add(service)
        ending = {service for service, (until, before) in self._ends.items() if until - now <= before}
        if ending and now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            services |= ending
        if now >= self._check_at:
            self._check_at = now + CHECK_EVERY
            services |= set(self._context.backends)
        for service in sorted(services - self._asked):
            self._asked.add(service)
            self._context.calls.start(
                self._context.backends[service].check, partial(self._answered, service), service
            )

    def soon(self) -> None:
        """Ask all services at the next round."""
        self._check_at = self._context.clock.now()

    def moments(self) -> list[datetime]:
        """Return when it is time to ask what does not work."""
        return [again_at for _, again_at in self._mending.values()]

    def _answered(self, service: str, identity: Identity | None, error: ServiceError | None) -> None:
        """Take the answer of a service about who we are."""
        self._asked.discard(service)
        if identity is not None:
            self._context.answers(service)
            if identity.may_end is None:  # its probe was lost: what was known stays so
                identity = replace(identity, may_end=self._context.identities[service].may_end)
            error = error or self._not_ours(identity)
        if (
            isinstance(error, NeedsOperator)
            and error.hold == Hold.API_ERRORS
            and service not in self._context.broken
        ):
            error = Temporary(error.message, error.hint)  # it worked until now, and its other calls will show it
        if service in self._mending:
            refused = isinstance(error, NeedsOperator) and error.hold == Hold.CREDENTIALS
            times, longest = self._mending[service][0], MEND_EVERY if refused else MEND_SOON
            wait = backoff(times, service, MEND_FIRST, longest)
            self._mending[service] = times, self._context.clock.now() + wait
        if error is not None:
            self._context.fail(service, error)
        elif identity is not None:
            self._context.identities[service] = identity
            self._watch(identity)
            if self._context.broken.pop(service, None):
                self._works_again()
                self._context.ledger.signal("service", service, "answers", self._context.clock.now())
                log.info(
                    "%s works again", service, extra={"event": "service-works", "fields": {"service": service}}
                )

    def _watch(self, identity: Identity) -> None:
        """Warn of credentials that end soon: once in the log, and in the ledger for as long as that holds."""
        now, service, until = self._context.clock.now(), identity.service, identity.credentials_until
        if until is None:
            self._ends.pop(service, None)
        if until is not None and until - now <= self._soon(service, until, now):
            why = f"they end at {until.isoformat(timespec='seconds')}"
            self._context.ledger.signal("credentials", service, None, now, why)
            if self._warned.get(service) != until:
                self._warned[service] = until
                values = {"service": service, "until": until.isoformat(timespec="seconds")}
                log.warning(
                    "the credentials for %s: %s; renew them in their place, without a restart",
                    service, why,
                    extra={"event": "credentials-end", "fields": values},
                )  # fmt: skip
        elif self._warned.pop(service, None) is not None or until is not None:
            self._context.ledger.signal("credentials", service, "good", now)

    def _soon(self, service: str, until: datetime, now: datetime) -> timedelta:
        """Return how long before their end there is a warning about credentials.

        Credentials that were renewed will be renewed again: of a short time only the second half is soon.
        """
        earlier = self._ends.get(service)
        if earlier is None or earlier[0] != until:
            before = WARN_BEFORE if earlier is None else min(WARN_BEFORE, (until - now) / 2)
            self._ends[service] = until, before
        return self._ends[service][1]

    def _not_ours(self, identity: Identity) -> NeedsOperator | None:
        """Return why a service must not be used as whom it knows us now: another account than the campaign's."""
        was = self._context.identities[identity.service]
        if identity.admin and not was.admin:
            return NeedsOperator(f"{identity.account} is an administrator's account", hold="credentials")
        try:
            self._context.ledger.identify(identity, self._context.clock.now())
        except LedgerError as error:
            return NeedsOperator(error.message, error.hint, hold="credentials")
        return None
