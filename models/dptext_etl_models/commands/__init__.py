"""The commands `dptext train` and `dptext calibrate`."""
