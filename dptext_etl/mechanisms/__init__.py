"""One mechanism per file, the file's name is the mechanism's name."""
