#!/usr/bin/env bash
# The whole job from the command line, in the current folder.
set -euo pipefail
python "$(dirname "$0")/reviews.py"
dptext plan privacy.toml
dptext run privacy.toml
dptext check privacy.toml
dptext statement privacy.toml --out statement
dptext ledger remaining --ledger ledger.db
