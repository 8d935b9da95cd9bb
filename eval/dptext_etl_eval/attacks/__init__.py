"""Hold the attacks: what somebody learns from a release. One file is one attack; nothing else registers it."""
