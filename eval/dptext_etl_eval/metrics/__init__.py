"""Hold the metricsof the use that a release keeps. One file is one metric; nothing else registers it."""
