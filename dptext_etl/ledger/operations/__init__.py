"""What changes a ledger: reserve, commit, settle, publish, freeze, releases and caps."""
