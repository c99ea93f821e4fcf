"""What commands ask for: a campaign that is put together from menus, ledger, services and clock, and is ready."""
