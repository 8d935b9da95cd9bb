"""Provide the command line `dptext`, with one command per file."""

from dptext_etl.cli.app import main as main
