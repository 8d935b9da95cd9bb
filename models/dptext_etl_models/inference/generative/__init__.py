"""Run language models that answer a prompt token by token."""
