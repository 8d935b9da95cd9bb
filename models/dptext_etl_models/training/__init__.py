"""Train the public artifacts that ship with dptext_etl, on public text only."""
