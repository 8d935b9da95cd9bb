"""What reads a ledger: verification, recounts, balances and views."""
