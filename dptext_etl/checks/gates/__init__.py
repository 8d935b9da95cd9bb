"""Gates, one per file, and the judging of a staged run by all of them."""
