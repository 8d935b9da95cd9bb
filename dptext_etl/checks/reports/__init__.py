"""Reports that look at raw text: inside the boundary, counts alone, never a verdict."""
