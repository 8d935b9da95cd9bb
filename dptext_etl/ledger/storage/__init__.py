"""How a ledger is kept: databases, the journal, sealed segments, the record index."""
