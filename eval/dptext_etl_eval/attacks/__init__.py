"""Hold the attacks: what someone learns from a release. One file is one attack; nothing else registers it."""
