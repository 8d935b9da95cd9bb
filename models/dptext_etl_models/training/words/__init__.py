"""What mechanisms over words are built from: vectors, counts, tags, synonyms and n-grams of public text."""
