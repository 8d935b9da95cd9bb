"""Provide the command line `dptext`."""

from dptext_etl.cli.app import main as main
