"""What is injected next: pure arithmetic over what the ledger and the services have told."""
