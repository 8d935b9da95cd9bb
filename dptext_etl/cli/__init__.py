"""The command line, `dptext`: one command per file."""

from dptext_etl.cli.app import main as main
