"""Where the noise enters: one module per family of mechanisms."""
