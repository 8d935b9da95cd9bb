"""What `dptext demo` works on and tells."""
