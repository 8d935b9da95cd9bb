"""Run `dptext` as `python -m dptext_etl.cli`."""

from dptext_etl.cli.app import main

if __name__ == "__main__":
    main()
