"""Models with a latent for ADePT and DP-BART: autoencoders, training under noise, pruning."""
