"""Read a ledger: verify it, count it again, show balances and releases."""
