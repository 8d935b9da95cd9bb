"""Judge released tables with Great Expectations, by counts alone."""
