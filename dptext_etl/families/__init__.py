"""Define the families of mechanisms, one module per way in which noise enters."""
