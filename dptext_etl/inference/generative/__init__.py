"""Language models that answer a prompt, token by token."""
