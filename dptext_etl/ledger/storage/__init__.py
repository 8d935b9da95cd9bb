"""Store a ledger: databases, the journal, sealed segments, the record index."""
