"""What is injected next: pure arithmetic over what the ledger has and the services reported."""
