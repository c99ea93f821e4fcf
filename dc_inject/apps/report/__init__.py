"""The report of a campaign: figures from its ledger, as data, text or a page."""
