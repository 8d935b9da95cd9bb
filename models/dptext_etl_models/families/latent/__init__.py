"""Add noise to the vector of a whole text, then decode a text."""

from dptext_etl_models.families.latent.latent import LatentMechanism as LatentMechanism
