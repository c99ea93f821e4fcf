"""The durable record of a campaign: due, intents, outcomes, holds and changes, in one SQLite file."""

from dc_inject.ledger.ledger import Ledger, LedgerView, Reader
from dc_inject.ledger.paths import campaign_of, default_folder, default_path, files, shard_of, shard_path
from dc_inject.ledger.types import (
    BoundIdentity,
    Change,
    ControlDecision,
    Finding,
    MenuInForce,
    Pause,
    Row,
    Signal,
    SummaryLine,
    Totals,
)
