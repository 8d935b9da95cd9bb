"""`python -m dptext_etl.cli` is `dptext`."""

from dptext_etl.cli.app import main

if __name__ == "__main__":
    main()
