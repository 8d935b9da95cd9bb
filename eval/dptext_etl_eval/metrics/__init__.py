"""Hold the metrics of the use that a release keeps. One file is one metric; nothing else registers it."""
