"""Change a ledger: reserve, commit, settle, publish, freeze, pin releases and caps."""
