"""Hold the metrics: what a release keeps. One file is one metric; nothing else registers it."""
